"""Small audits, as command lines."""

SURE = ("--confidence", 0.999999)
NEIGHBOR = ("audit", "neighbor", "--runs", 40, "--rounds", 5, "--workers", 1, "--batch", 20, *SURE)
MEMBERSHIP = (
    "audit",
    "membership",
    "--dataset",
    "digits",
    "--runs",
    12,
    "--rounds",
    3,
    "--workers",
    1,
    "--batch",
    12,
    *SURE,
)
BLANK = ("--canary", "blank", "--dataset", "digits")
