"""What was found about noise and lots, in words and rounded numbers: the same on the page and in a terminal."""

from collections.abc import Mapping
from typing import Any

from tacit.audit.noise.report import WORDS
from tacit.audit.pages.wording import Document, lower
from tacit.report.wording import agents, epsilon, number, percent

TESTS = {
    "sigma": "size of the noise",
    "shape": "shape of the noise",
    "tail": "largest noise of all",
    "lag": "a round and the next",
    "rounds": "rounds of one run",
    "trials": "one run and another",
    "shifts": "every lag and shift",
    "rate": "share of records drawn",
    "lots": "how lot sizes vary",
    "agents": "two agents",
    "repeats": "noise used twice",
}
"""What each check looks at."""

ABOUT_EPSILON = (
    "ε is what the accountant makes of σ and q: as stated, as estimated, and at the ends of the intervals that favour the "
    "system most. It takes the noise as normal and independent, whatever the tests say."
)


def verdict(document: Document) -> str:
    """Say in one sentence what came out."""
    if document["verdict"] == "as stated":
        return f"Noise and lots of {tested(document)} are as stated, as far as {document['trials']:,} runs show."
    found = dict.fromkeys(each["meaning"] for each in document["failed"])
    return f"Noise or lots are not as stated: {'; '.join(found)}."


def tested(document: Document) -> str:
    """Say whose noise was looked at; of the others, not all answers can be reconstructed from there."""
    seen, total = [each["agent"] for each in document["agents"]], document["attack"]["agents"]
    return "all agents" if len(seen) == total else f"agent{'s' if len(seen) > 1 else ''} {agents(seen)} (of {total})"


def untested(document: Document) -> str:
    """Say whose noise was not looked at, if there are any."""
    seen = {each["agent"] for each in document["agents"]}
    left = [agent for agent in range(document["attack"]["agents"]) if agent not in seen]
    return f"Not tested: {agents(left)}, whose answers these observers do not see in full." if left else ""


def consequence(document: Document) -> str:
    """Say what that means."""
    if document["verdict"] == "as stated":
        return f"{untested(document)} ".lstrip() + (
            "This is no proof. Faults too small for so many runs stay unseen, and so does all that is not about noise and "
            "lots, such as gradients that are not clipped."
        )
    return "The ε that is claimed rests on them; do not rely on it. One fault may fail several tests."


def risk(document: Document) -> str:
    """Say how often the verdict is wrong about a sound system."""
    return f"A system that is as stated is called otherwise in {percent(document['false_alarm'], 2)} of audits at most."


def quantities(agent: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return σ, q and ε of an agent: stated, estimated, and how sure that is."""
    rows = [
        (sign, number(each["stated"]), number(each["estimate"]), f"{number(each['low'])} to {number(each['high'])}")
        for sign, each in (("σ", agent["sigma"]), ("q", agent["rate"]))
    ]
    spent = agent["epsilon"]
    stated, estimate = ("∞" if value is None else epsilon(value) for value in (spent["stated"], spent["estimate"]))
    least = spent["at_least"]
    return [*rows, ("ε", stated, estimate, "∞" if least is None else f"at least {lower(least)}")]


def tests(document: Document) -> list[tuple[str, str, str, str, bool]]:
    """Return for every kind of test: what it looks at, how many, the least p-value, what was found, and if it failed."""
    rows = []
    for name, looks_at in TESTS.items():
        checks = [check for check in document["checks"] if check["name"] == name]
        if not checks:
            continue
        least = min(check["p_value"] for check in checks)
        failed = {agent for each in document["failed"] if each["name"] == name for agent in each["agents"]}
        who = "agent" if len(failed) == 1 else "agents"
        found = f"{WORDS[name]} ({who} {agents(sorted(failed))})" if failed else "as stated"
        rows.append((looks_at, f"{len(checks):,}", f"{least:.2g}", found, bool(failed)))
    return rows
