"""The page of an audit of one run: how many canaries were guessed, how many rightly, and what that proves."""

from tacit.audit.pages.parts import bound_header, bound_tiles, roc_figure, seen, settings
from tacit.audit.pages.wording import METHODS, Document, confidence, heading, lower
from tacit.report.html.charts import Chart
from tacit.report.html.frame import table, text
from tacit.report.wording import percent

_CAPTION = (
    "A hit is a canary that was in and that the attack calls so; a false alarm is one that was out. Higher is worse for "
    "privacy. On the left, the line rests on few canaries and may pass the dashed limit by luck; the bounds rest on the number "
    "of right guesses, not on this line."
)


def parts(document: Document, chart: Chart | None) -> tuple[str, str]:
    """Return the header and the main part; there is no chart where all coins fell alike."""
    outcome = document["outcome"]
    guessed = f"{outcome['guesses']:,} of {outcome['canaries']:,} canaries guessed, {outcome['correct']:,} rightly"
    share = outcome["correct"] / outcome["guesses"]
    tiles = bound_tiles(
        document,
        (
            "right guesses",
            f"{outcome['correct']:,} of {outcome['guesses']:,}",
            f"{percent(share)}; by chance 50\u202f%",
        ),
        "that the bounds hold",
    )
    main = "".join(
        [
            tiles,
            '<div class="grid">',
            "" if chart is None else roc_figure(chart, _CAPTION),
            _bounds(document),
            seen(document["attack"]),
            _meaning(document),
            settings(document),
            "</div>",
        ]
    )
    return bound_header(document, f"one run; {guessed}"), main


def _bounds(document: Document) -> str:
    rows = [
        (text(heading(bound["method"])), lower(bound["epsilon"]), f"It {METHODS[bound['method']][1]}.")
        for bound in document["bounds"]
    ]
    return (
        '<section class="card full"><h2>Bounds</h2><p class="note">Both rest on the same number of right guesses.</p>'
        f"{table(('supposing', 'ε ≥', 'when it holds'), rows, kind='stack')}</section>"
    )


def _meaning(document: Document) -> str:
    sure = text(confidence(document))
    return (
        '<section class="card"><h2>What this means, and what not</h2>'
        f"<p>A lower bound says: at {sure} confidence, at least this much privacy is lost. A bound above the claim shows "
        "that the claim is wrong.</p>"
        "<p>A bound below the claim proves nothing about it. One run shows less than many do, and its bound stays well "
        "below ε even where the attack is as good as can be.</p>"
        "<p>The confidence is true only if the number of guesses was fixed before the outcome was seen.</p>"
        '<p class="note">It is that of one audit. Of many audits of sound systems, a few will call one broken by chance; '
        "run such an audit again before you believe it.</p></section>"
    )
