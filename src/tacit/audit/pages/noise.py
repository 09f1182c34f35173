"""The page of an audit of noise and lots: stated beside estimated for every agent, and what each test found."""

from tacit.audit.pages import noise_wording as noise_words
from tacit.audit.pages.parts import header, seen, settings
from tacit.audit.pages.wording import Document
from tacit.report.html.frame import table, text
from tacit.report.wording import percent


def parts(document: Document) -> tuple[str, str]:
    """Return the header and the main part."""
    bad = document["verdict"] == "not as stated"
    top = header(
        document["attack"],
        bad=bad,
        badge=document["verdict"].upper(),
        figure=f"Noise and lots of {noise_words.tested(document)} are {document['verdict']}"
        + ("" if bad else ", as far as can be seen"),
        terms=f"{len(document['checks']):,} tests on {document['trials']:,} runs of {document['queries']:,} queries · "
        f"false alarms: {percent(document['false_alarm'], 2)} at most",
        words=f"{noise_words.verdict(document)} {noise_words.consequence(document)}",
    )
    main = "".join(
        [
            '<div class="grid">',
            _agents(document),
            _tests(document),
            seen(document["attack"], queries="answers of every agent"),
            _meaning(document),
            settings(document),
            "</div>",
        ]
    )
    return top, main


def _agents(document: Document) -> str:
    rows = [(str(each["agent"]), *row) for each in document["agents"] for row in noise_words.quantities(each)]
    head = ("agent", "quantity", "stated", "estimated", "interval")
    return (
        '<section class="card full"><h2>Stated and estimated</h2><p class="note">σ is the noise in clipping norms, q the '
        f"chance of a record to be in a lot. {text(noise_words.ABOUT_EPSILON)} The intervals are as sure as the verdict "
        f"is.</p>{table(head, rows, kind='stack')}</section>"
    )


def _tests(document: Document) -> str:
    rows = [(text(looks_at), *rest) for looks_at, *rest, _ in noise_words.tests(document)]
    return (
        '<section class="card full"><h2>Tests</h2><p class="note">A p-value is the probability of data at least as far from '
        f"what is stated, if all is as stated. A test fails where it is below {document['threshold']:.2g}; shown is the least of each kind.</p>"
        f"{table(('test', 'number', 'least p', 'found'), rows, kind='stack')}</section>"
    )


def _meaning(document: Document) -> str:
    return (
        '<section class="card"><h2>What this means, and what not</h2>'
        "<p>The noise was taken out of what neighbours see and held against what is stated. A test that fails shows that "
        "the promise rests on something that is not so.</p>"
        "<p>That all tests pass proves nothing. A fault that is small for so many runs stays unseen, and so does whatever "
        "is not about noise and lots: a gradient that is not clipped, a record that is used twice, a wrong count of "
        "queries.</p>"
        f'<p class="note">{text(noise_words.risk(document))} Run such an audit again before you believe it.</p></section>'
    )
