"""What an auditor receives: archives of runs, signed heads, and their verification."""

from typing import TYPE_CHECKING

from tacit.lazy import lazily

if TYPE_CHECKING:
    from tacit.evidence.archive import Archive, pack
    from tacit.evidence.findings import Finding
    from tacit.evidence.signing import Statement, new_key, read_signature, sign
    from tacit.evidence.verifying import verify
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "tacit.evidence.archive": ("Archive", "pack"),
            "tacit.evidence.findings": ("Finding",),
            "tacit.evidence.signing": ("Statement", "new_key", "read_signature", "sign"),
            "tacit.evidence.verifying": ("verify",),
        },
    )

__all__ = ["Archive", "Finding", "Statement", "new_key", "pack", "read_signature", "sign", "verify"]
