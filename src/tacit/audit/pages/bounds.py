"""Pages of audits that end in a lower bound on ε: attacks with scores of many runs, and guesses about canaries of one run."""

from tacit.audit.pages import wording
from tacit.audit.pages.charts import roc
from tacit.audit.pages.parts import Page, card, grid, header, meaning, seen
from tacit.audit.pages.wording import METHODS, Document
from tacit.report.html.frame import figure, table, text, tile
from tacit.report.wording import ADJACENCIES, number, percent

_AGAIN = (
    "The confidence is that of one audit. Of many audits of sound systems, a few will call one broken by chance; repeat such an "
    "audit in a new folder before you believe it."
)


def scores_page(document: Document) -> Page:
    """Return the page of an attack on many runs with a record and without."""
    runs = document["runs_per_side"]
    caption = (
        "A hit is a run with the record that the attack calls so; a false alarm is one without it. Higher is worse for privacy. On "
        "the left, lines rest on few runs and may cross the dashed limit by luck; the verdict rests on the bounds, which are "
        "measured at the dots."
    )
    return (
        _header(document, f"{runs:,} runs with the record and as many without"),
        _tiles(document, ("runs", f"2 × {runs:,}", "with the record, and without"), "that all bounds hold together")
        + grid(
            document,
            _roc_figure(document, caption),
            _looks(document),
            seen(document["attack"]),
            meaning(
                _lower_bound_meaning(document),
                "A bound below the claim proves nothing about it. A better attack, another record or more runs might show more. "
                f"With few runs even a bad leak can stay below the claim. {wording.reach(document)}",
                "The bounds are about this system with these settings, this one record, and data sets that differ by adding or "
                "removing it. Nothing follows for other settings.",
                note=_AGAIN,
            ),
        ),
    )


def one_run_page(document: Document) -> Page:
    """Return the page of an audit of one run: how many canaries were guessed, how many rightly, and what that proves."""
    outcome = document["outcome"]
    right = f"{outcome['correct']:,} of {outcome['guesses']:,}"
    share = f"{percent(outcome['correct'] / outcome['guesses'])}; by chance 50\u202f%"
    guessed = f"{outcome['guesses']:,} of {outcome['canaries']:,} canaries guessed, {outcome['correct']:,} rightly"
    caption = (
        "A hit is a canary that was in and that the attack calls so; a false alarm is one that was out. Higher is worse for privacy. "
        "On the left, the line rests on few canaries and may cross the dashed limit by luck; the bounds rest on the number of right "
        "guesses, not on this line."
    )
    rows = [
        (text(wording.heading(bound["method"])), wording.lower(bound["epsilon"]), f"It {METHODS[bound['method']][1]}.")
        for bound in document["bounds"]
    ]
    bounds = table(("what may be wrong", "ε ≥", "when it holds"), rows, kind="stack")
    return (
        _header(document, f"one run; {guessed}"),
        _tiles(document, ("right guesses", right, share), "that the bounds hold")
        + grid(
            document,
            _roc_figure(document, caption) if document["roc"] else "",
            card("Bounds", f'<p class="note">Both rest on the same number of right guesses.</p>{bounds}', kind="full"),
            seen(document["attack"]),
            meaning(
                _lower_bound_meaning(document),
                "A bound below the claim proves nothing about it. One run shows less than many do, and its bound stays well below ε "
                "even for the best attack.",
                "The confidence holds only if the number of guesses was fixed before the outcome was seen.",
                note=_AGAIN,
            ),
        ),
    )


def _header(document: Document, played: str) -> str:
    """Return the top of a page on a claim and a lower bound. `played` says how many runs there were."""
    claim = document["claimed"]
    return header(
        document["attack"],
        bad=document["verdict"] == "broken",
        badge=document["verdict"].upper(),
        figure=f"ε ≥ {wording.lower(document['lower_bound'])}",
        terms=f"claimed: ε = {wording.claimed(document)} at δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency · {played}",
        verdict=f"{wording.verdict(document)} {wording.consequence(document)}",
    )


def _tiles(document: Document, played: tuple[str, str, str], sure: str) -> str:
    """Return the claim, the bound, how much was played, and the confidence; `sure` says of what."""
    bound, claim = document["lower_bound"], document["claimed"]
    weaker = wording.unconditional_bound(document)
    more = "of all bounds below" if weaker is None else f"if only the noise is wrong; else {wording.lower(weaker)}"
    tiles = (
        tile("claimed ε", wording.claimed(document), f"at δ = {claim['delta']:g}"),
        tile("largest lower bound", wording.lower(bound), more, bound / claim["epsilon"] if claim["epsilon"] else None),
        tile(*played),
        tile("confidence", wording.confidence(document), sure),
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _roc_figure(document: Document, caption: str) -> str:
    """Return the chart of hits against false alarms, with a key for narrow screens."""
    chart = roc(document)
    key = "".join(
        f'<span><span class="swatch {trace["line"]["dash"]}" style="border-top-color:var({trace["line"]["color"]})"></span>'
        f"{trace['name']}</span>"
        for trace in chart["data"]
        if trace.get("showlegend", True)
    )
    return figure("roc", "How good the attack is", f'{caption}<div class="key">{key}</div>', chart, kind="full tall")


def _looks(document: Document) -> str:
    looks = document["looks"]
    kinds = wording.methods(looks)
    bounds = (f"ε ≥ {wording.heading(method)}" for method in kinds)
    head = ("statistic", "cut at", "chosen", "false alarms", "misses", *bounds, "estimate (interval)")
    rows = [
        (
            text(look["statistic"]),
            number(look["threshold"]),
            "first runs" if look["chosen"] == "on the first part" else look["chosen"],
            *wording.errors_of(look),
            *wording.bounds_of(look, kinds),
            wording.estimate(look),
        )
        for look in looks
    ]
    when = " ".join(
        f"“{wording.heading(method).capitalize()}” {METHODS[method][1]}." for method in kinds if method in METHODS
    )
    return card(
        "Looks and bounds",
        '<p class="note">Each look calls every run with a score above its cut “with the record” and counts the errors. A cut chosen '
        f"on the first runs is measured on the others.</p>{table(head, rows, kind='stack')}"
        f'<p class="note">{text(when)} {text(wording.intervals(document))}</p>',
        kind="full",
    )


def _lower_bound_meaning(document: Document) -> str:
    return (
        f"A lower bound says: at {wording.confidence(document)} confidence, at least this much privacy is lost. A bound above the claim "
        "shows that the claim is wrong."
    )
