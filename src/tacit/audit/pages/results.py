"""What an audit found, as text for its page and for the terminal: one function for each kind of result."""

from collections.abc import Mapping
from typing import Any

from tacit.audit.noise.report import TESTS
from tacit.audit.pages import statements
from tacit.audit.pages.statements import METHODS, Document
from tacit.audit.pages.text import ResultTable, ResultText
from tacit.report.wording import ADJACENCIES, list_agents, lower_bound, name_agents, number, percent, write_epsilon

_AGAIN = (
    "The confidence is that of one audit. Of many audits of sound systems, a few will call one broken by chance; repeat such an "
    "audit in a new folder before you believe it."
)
_ABOUT_EPSILON = (
    "ε is the accountant's for σ and q: as stated, as estimated, and at the ends of the intervals that favour the system most. It "
    "assumes normal and independent noise, whatever the tests say."
)
_ROC = (
    "A hit is {} that the attack calls so; a false alarm is one {}. Higher is worse for privacy. On the left, lines rest on few {} "
    "and may cross the dashed limit by luck; {}."
)


def describe(document: Document) -> ResultText:
    """Return the text of an audit, from what `audit.json` has; what it has says which kind of result it is."""
    kinds = {"thresholds": _describe_scores, "outcome": _describe_guesses, "checks": _describe_noise}
    return next((make for key, make in kinds.items() if key in document), _describe_check)(document)


def _describe_scores(document: Document) -> ResultText:
    """Describe an attack on many runs with a record and without."""
    runs, attack = f"{document['runs_per_side']:,}", document["attack"]
    kinds = statements.methods(document["thresholds"])
    table = ResultTable(
        title="How large ε is at least, by statistic and threshold",
        head=(
            *("statistic", ">threshold", "chosen", ">false alarms", ">misses"),
            *(f">{METHODS[kind][0]}" for kind in kinds),
            "estimate (interval)",
        ),
        rows=[
            (
                each["statistic"],
                number(each["threshold"]),
                "first runs" if each["chosen"] == "on the first part" else each["chosen"],
                *statements.errors_of(each),
                *statements.bounds_of(each, kinds),
                statements.estimate(each),
            )
            for each in document["thresholds"]
        ],
        page_only=("chosen", "estimate (interval)"),
        before="Every run with a score above the threshold is called “with the record”, and the errors are counted. A threshold "
        "chosen on the first runs is measured on the others.",
        after=" ".join(f"“{METHODS[kind][0].capitalize()}” {METHODS[kind][1]}." for kind in kinds)
        + f" {statements.intervals(document)}",
    )
    seen: tuple[tuple[str, str], ...] = ()
    if attack.get("share_seen") is not None:
        share = f"{percent(attack['share_seen'])} of the {attack['queries']:,} answers of agent {attack['target']}"
        seen = (("seen", f"{share}; {attack['exact_answers']:,} exactly"),)
    weaker = statements.unconditional_bound(document)
    which = "" if weaker is None else f" if only the noise is wrong, else {lower_bound(weaker)},"
    shown = f"ε ≥ {lower_bound(document['lower_bound'])}{which} at {statements.confidence(document)} confidence"
    return _describe_bound(
        document,
        played=f"{runs} runs with the record and as many without",
        tile=("runs", f"2 × {runs}", "with the record, and without"),
        sure="that all bounds hold together",
        tables=(table,),
        caption=_ROC.format(
            "a run with the record",
            "without it",
            "runs",
            "the verdict rests on the bounds, which are measured at the dots",
        ),
        facts=(("shown", shown), ("runs", f"{runs} with the record and as many without"), *seen),
        hints=tuple("ε ≥ {}: {}".format(*METHODS[kind]) for kind in kinds),
        reach=statements.reach(document),
        meaning=(
            "A bound below the claim proves nothing about it. A better attack, another record or more runs might show more. With few "
            f"runs even a bad leak can stay below the claim. {statements.reach(document)}",
            "The bounds are about this system with these settings, this one record, and data sets that differ by adding or removing "
            "it. Nothing follows for other settings.",
        ),
    )


def _describe_guesses(document: Document) -> ResultText:
    """Describe an audit of one run: how many canaries were guessed, how many rightly, and what that proves."""
    canaries, guesses, right = (f"{document['outcome'][name]:,}" for name in ("canaries", "guesses", "correct"))
    share = percent(document["outcome"]["correct"] / document["outcome"]["guesses"])
    bounds = [(*METHODS[bound["method"]], lower_bound(bound["epsilon"])) for bound in document["bounds"]]
    table = ResultTable(
        title="Bounds",
        head=("what may be wrong", "ε ≥", "when it holds"),
        rows=[(heading, value, f"It {when}.") for heading, when, value in bounds],
        page_only=("what may be wrong", "ε ≥", "when it holds"),
        before="Both rest on the same number of right guesses.",
    )
    return _describe_bound(
        document,
        played=f"one run; {guesses} of {canaries} canaries guessed, {right} rightly",
        tile=("right guesses", f"{right} of {guesses}", f"{share}; by chance 50\u202f%"),
        sure="that the bounds hold",
        tables=(table,),
        caption=_ROC.format(
            "a canary that was in and",
            "that was out",
            "canaries",
            "the bounds rest on the number of right guesses alone",
        ),
        facts=(
            ("canaries", f"{canaries}, each in or out by a coin"),
            ("guessed", f"{guesses}, the surest; the number was fixed beforehand"),
            ("right", f"{right} ({share}); about half would be right by chance"),
            *((heading, f"ε ≥ {value}; this {when}") for heading, when, value in bounds),
        ),
        meaning=(
            "A bound below the claim proves nothing about it. One run shows less than many do, and its bound stays well below ε even "
            "for the best attack.",
            "The confidence holds only if the number of guesses was fixed before the outcome was seen.",
        ),
    )


def _describe_bound(
    document: Document,
    *,
    played: str,
    tile: tuple[str, str, str],
    sure: str,
    facts: tuple[tuple[str, str], ...],
    meaning: tuple[str, ...],
    reach: str = "",
    **more: Any,
) -> ResultText:
    """Describe an audit that ends in a lower bound on ε: `played` says of how many runs, `sure` what the confidence is about."""
    bound, claim, against = document["lower_bound"], document["claimed"], document["attack"].get("against")
    weaker, adjacency = statements.unconditional_bound(document), ADJACENCIES[claim["adjacency"]]
    stated = f"ε = {statements.claimed(document)} at δ = {claim['delta']:g}, {adjacency} adjacency"
    stated += "" if against is None else f", against {against}"
    sharper = "of all bounds below" if weaker is None else f"if only the noise is wrong; else {lower_bound(weaker)}"
    return ResultText(
        bad=document["verdict"] == "broken",
        figure=f"ε ≥ {lower_bound(bound)}",
        terms=f"claimed: {stated} · {played}",
        verdict=statements.verdict(document),
        consequence=f"{statements.consequence(document)} {reach}".rstrip(),
        tiles=(
            ("claimed ε", statements.claimed(document), f"at δ = {claim['delta']:g}", None),
            (
                *("largest lower bound", lower_bound(bound), sharper),
                bound / claim["epsilon"] if claim["epsilon"] else None,
            ),
            (*tile, None),
            ("confidence", statements.confidence(document), sure, None),
        ),
        facts=(("claimed", stated), *facts),
        meaning=(
            f"A lower bound says: at {statements.confidence(document)} confidence, at least this much privacy is lost. A bound above the "
            "claim shows that the claim is wrong.",
            *meaning,
        ),
        note=_AGAIN,
        **more,
    )


def _describe_noise(document: Document) -> ResultText:
    """Describe an audit of noise and lots."""
    seen, total = [each["agent"] for each in document["agents"]], document["attack"]["agents"]
    left = [agent for agent in range(total) if agent not in seen]
    whose = f"{name_agents(seen)} (of {total})" if left else "all agents"
    bad, share = document["verdict"] == "not as stated", percent(document["false_alarm"], 2)
    verdict = f"Noise and lots of {whose} are as stated, as far as {document['trials']:,} runs show."
    untested = f"Not tested: {list_agents(left)}, whose answers these observers do not see in full. " if left else ""
    consequence = (
        f"{untested}This is not a proof. Faults too small for this many runs go unnoticed, and so does everything other than noise "
        "and lots, such as gradients that are not clipped."
    )
    if bad:
        found = dict.fromkeys(each["meaning"] for each in document["failed"])
        verdict = f"Noise or lots are not as stated: {'; '.join(found)}."
        consequence = "The claimed ε rests on them; do not rely on it. One fault may fail several tests."
    risk = f"At most {share} of audits of a system that is as stated say otherwise."
    return ResultText(
        bad=bad,
        figure=f"Noise and lots of {whose} are {document['verdict']}{'' if bad else ', as far as these tests show'}",
        terms=f"{len(document['checks']):,} tests on {document['trials']:,} runs of {document['queries']:,} queries · false alarms: at "
        f"most {share}",
        verdict=verdict,
        consequence=f"{consequence} {risk}",
        tables=(
            ResultTable(
                title="Stated and estimated",
                head=(">agent", "quantity", ">stated", ">estimated", "interval"),
                rows=[(str(each["agent"]), *row) for each in document["agents"] for row in _quantities(each)],
                before="σ is the noise in clipping norms, q the probability that a record is in a lot. "
                f"{_ABOUT_EPSILON} The intervals have the confidence of the verdict.",
            ),
            _list_tests(document),
        ),
        meaning=(
            "The noise was taken out of what neighbours see and compared with what is stated. A test that fails shows that the "
            "claimed ε rests on something untrue.",
            "If all tests pass, that proves nothing. A fault that is small for this many runs goes unnoticed, and so does everything "
            "other than noise and lots: a gradient that is not clipped, a record that is used twice, a wrong count of queries.",
        ),
        note=f"{risk} Repeat an audit that fails before you believe it.",
        hints=(_ABOUT_EPSILON, f"A test fails where p is below {document['threshold']:.2g}."),
        labels={"queries": "answers of every agent"},
    )


def _quantities(agent: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return σ, q and ε of an agent: stated, estimated, and the interval."""
    rows = [
        (sign, number(each["stated"]), number(each["estimate"]), f"{number(each['low'])} to {number(each['high'])}")
        for sign, each in (("σ", agent["sigma"]), ("q", agent["rate"]))
    ]
    spent = agent["epsilon"]
    stated, estimate = (
        "∞" if value is None else write_epsilon(value) for value in (spent["stated"], spent["estimate"])
    )
    least = spent["at_least"]
    return [*rows, ("ε", stated, estimate, "∞" if least is None else f"at least {lower_bound(least)}")]


def _list_tests(document: Document) -> ResultTable:
    """List every kind of test: what it compares, how many there are, the least p-value and the result."""
    rows: list[tuple[str, ...]] = []
    marks = {}
    for name, (about, failure) in TESTS.items():
        p_values = [check["p_value"] for check in document["checks"] if check["name"] == name]
        if not p_values:
            continue
        found = "as stated"
        if failed := {agent for each in document["failed"] if each["name"] == name for agent in each["agents"]}:
            found = f"{failure} ({name_agents(sorted(failed))})"
            marks[len(rows)] = "fail"
        rows.append((about, f"{len(p_values):,}", f"{min(p_values):.2g}", found))
    return ResultTable(
        title="Tests",
        head=("test", ">number", ">least p", "found"),
        rows=rows,
        marks=marks,
        wrapped=("test", "found"),
        before="A p-value is the probability of data at least as far off if everything is as stated. A test fails where it is below "
        f"{document['threshold']:.2g}; the table has the least of each kind.",
    )


def _describe_check(document: Document) -> ResultText:
    """Describe a check of one's own settings."""
    findings, bad = document["findings"], document["verdict"] == "fault found"
    risk = f"Sound settings fail in at most {document['false_alarm']:.2g} of checks."
    unclear = [f"{each['part']}: {each['name']}" for each in findings if each["outcome"] == "inconclusive"]
    verdict = "No fault was found." + (f" Inconclusive: {', '.join(unclear)}." if unclear else "")
    if bad:
        verdict = f"A fault was found: {', '.join(document['failed'])}. Do not rely on the ε of these settings."
    table = ResultTable(
        title="Findings",
        head=("what", "outcome", "measured", "bound"),
        rows=[
            (f"{each['part']}: {each['name']}", each["outcome"], each["measured"], each["bound"]) for each in findings
        ],
        marks={place: each["outcome"] for place, each in enumerate(findings) if each["outcome"] != "pass"},
        wrapped=("measured", "bound"),
        before=document["about"],
    )
    return ResultText(
        bad=bad,
        figure="Something is not as it should be" if bad else "These tests found no fault",
        terms=f"{len(findings)} findings · {risk}",
        verdict=verdict,
        tables=(table,),
        facts=(("settings", document["about"]),),
        meaning=tuple(document["cannot_show"]),
        meaning_title="What this cannot show",
        limits=(risk, *document["cannot_show"]),
    )
