"""The page of an audit of noise and lots, and the texts and rounded numbers that it shares with the terminal."""

from collections.abc import Mapping
from typing import Any

from tacit.audit.noise.report import TESTS
from tacit.audit.pages.parts import Page, card, grid, header, meaning, seen
from tacit.audit.pages.wording import Document, lower
from tacit.report.html.frame import table, text
from tacit.report.wording import agents, epsilon, number, percent

ABOUT_EPSILON = (
    "ε is the accountant's for σ and q: as stated, as estimated, and at the ends of the intervals that favour the system most. It "
    "assumes normal and independent noise, whatever the tests say."
)


def verdict(document: Document) -> str:
    """Say in one sentence what was found."""
    if document["verdict"] == "as stated":
        return f"Noise and lots of {tested(document)} are as stated, as far as {document['trials']:,} runs show."
    found = dict.fromkeys(each["meaning"] for each in document["failed"])
    return f"Noise or lots are not as stated: {'; '.join(found)}."


def tested(document: Document) -> str:
    """Say whose noise was tested; the answers of the others cannot all be reconstructed from there."""
    seen, total = [each["agent"] for each in document["agents"]], document["attack"]["agents"]
    return "all agents" if len(seen) == total else f"agent{'s' if len(seen) > 1 else ''} {agents(seen)} (of {total})"


def untested(document: Document) -> str:
    """Say whose noise was not tested, if anyone's."""
    seen = {each["agent"] for each in document["agents"]}
    left = [agent for agent in range(document["attack"]["agents"]) if agent not in seen]
    return f"Not tested: {agents(left)}, whose answers these observers do not see in full." if left else ""


def consequence(document: Document) -> str:
    """Say what that means."""
    if document["verdict"] == "as stated":
        return f"{untested(document)} ".lstrip() + (
            "This is not a proof. Faults too small for this many runs go unnoticed, and so does everything other than noise and "
            "lots, such as gradients that are not clipped."
        )
    return "The claimed ε rests on them; do not rely on it. One fault may fail several tests."


def risk(document: Document) -> str:
    """Say how often the verdict on a sound system is wrong."""
    return f"At most {percent(document['false_alarm'], 2)} of audits of a system that is as stated say otherwise."


def quantities(agent: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return σ, q and ε of an agent: stated, estimated, and the interval."""
    rows = [
        (sign, number(each["stated"]), number(each["estimate"]), f"{number(each['low'])} to {number(each['high'])}")
        for sign, each in (("σ", agent["sigma"]), ("q", agent["rate"]))
    ]
    spent = agent["epsilon"]
    stated, estimate = ("∞" if value is None else epsilon(value) for value in (spent["stated"], spent["estimate"]))
    least = spent["at_least"]
    return [*rows, ("ε", stated, estimate, "∞" if least is None else f"at least {lower(least)}")]


def tests(document: Document) -> list[tuple[str, str, str, str, bool]]:
    """Return for every kind of test: what it compares, how many there are, the least p-value, the result, and whether it failed."""
    rows = []
    for name, (about, failure) in TESTS.items():
        p_values = [check["p_value"] for check in document["checks"] if check["name"] == name]
        if not p_values:
            continue
        failed = {agent for each in document["failed"] if each["name"] == name for agent in each["agents"]}
        who = "agent" if len(failed) == 1 else "agents"
        found = f"{failure} ({who} {agents(sorted(failed))})" if failed else "as stated"
        rows.append((about, f"{len(p_values):,}", f"{min(p_values):.2g}", found, bool(failed)))
    return rows


def make_page(document: Document) -> Page:
    """Return the header and the main part."""
    bad = document["verdict"] == "not as stated"
    top = header(
        document["attack"],
        bad=bad,
        badge=document["verdict"].upper(),
        figure=f"Noise and lots of {tested(document)} are {document['verdict']}"
        + ("" if bad else ", as far as these tests show"),
        terms=f"{len(document['checks']):,} tests on {document['trials']:,} runs of {document['queries']:,} queries · "
        f"false alarms: at most {percent(document['false_alarm'], 2)}",
        verdict=f"{verdict(document)} {consequence(document)}",
    )
    estimates = [(str(each["agent"]), *row) for each in document["agents"] for row in quantities(each)]
    results = [(text(about), *rest) for about, *rest, _ in tests(document)]
    return top, grid(
        document,
        card(
            "Stated and estimated",
            '<p class="note">σ is the noise in clipping norms, q the probability of a record to be in a lot. '
            f"{text(ABOUT_EPSILON)} The intervals have the confidence of the verdict.</p>"
            + table(("agent", "quantity", "stated", "estimated", "interval"), estimates, kind="stack"),
            kind="full",
        ),
        card(
            "Tests",
            '<p class="note">A p-value is the probability of data at least as far off if everything is as stated. A test fails where '
            f"it is below {document['threshold']:.2g}; the table has the least of each kind.</p>"
            + table(("test", "number", "least p", "found"), results, kind="stack"),
            kind="full",
        ),
        seen(document["attack"], queries="answers of every agent"),
        meaning(
            "The noise was taken out of what neighbours see and compared with what is stated. A test that fails shows that the "
            "promise rests on something untrue.",
            "If all tests pass, that proves nothing. A fault that is small for this many runs goes unnoticed, and so does everything "
            "other than noise and lots: a gradient that is not clipped, a record that is used twice, a wrong count of queries.",
            note=f"{risk(document)} Repeat an audit that fails before you believe it.",
        ),
    )
