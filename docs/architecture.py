"""Draws the two pictures of the architecture page from the code itself, as SVG files in `docs/images`.

    python docs/architecture.py

`packages.svg` shows which package imports which, as the import statements say. `record.svg` shows the way of one record; each station
names the module and the function or class that does the work, and drawing fails if that name no longer exists. `tests/test_architecture.py`
compares the committed files with what this script makes.
"""

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import networkx as nx

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
IMAGES = Path(__file__).parent / "images"

PACKAGES = {
    "cli": "the command line",
    "experiments": "the paper's figures",
    "evidence": "export and verify",
    "audit": "attacks and bounds",
    "peer": "one site among peers",
    "report": "pages and figures",
    "api": "train, resume, load",
    "cluster": "ranks, placement, launching",
    "tuning": "searches and their price",
    "runs": "run folders, resume",
    "training": "settings, session, results",
    "algorithms": "update rules Ψ",
    "privacy": "oracle, noise, ledger",
    "networks": "messages, topologies",
    "models": "modules, losses",
    "graphs": "graphs, mixing weights",
    "data": "records, partitions",
}
"""What each package is for, in the order in which packages of one layer are drawn."""
BASE = ("io", "errors", "lazy", "ties", "registry")
"""Imported almost everywhere, so drawn as one bar without arrows."""

FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="15"'
TIP = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>'
)


def read_imports() -> nx.DiGraph:
    """Return the packages and top-level modules, with an edge from each to everything that it imports."""
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    parts -= {"__init__", "__main__"}
    found: nx.DiGraph = nx.DiGraph()
    found.add_nodes_from(sorted(parts))
    for path in sorted(SOURCE.rglob("*.py")):
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if part in parts and path.name != "__main__.py":  # an entry point calls the command line
            found.add_edges_from((part, other) for other in _imported_by(path, parts) if other != part)
    return found


def _imported_by(path: Path, parts: set[str]) -> Iterator[str]:
    """Yield what a module imports. Names that `tacit` itself exports, apart from packages, come from `api`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tacit":
            names = [f"tacit.{alias.name}" for alias in node.names if not alias.name.startswith("_")]
        else:
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            top, _, rest = name.partition(".")
            if top == "tacit":
                first = rest.partition(".")[0]
                yield first if first in parts else "api"


def draw_packages() -> str:
    """Return the picture of the packages: an arrow for each import that does not follow from others."""
    imports = read_imports()
    missing = set(imports) ^ {*PACKAGES, *BASE}
    if missing:
        raise SystemExit(f"PACKAGES and src/tacit differ in {', '.join(sorted(missing))}")
    imports.remove_nodes_from(BASE)
    if not nx.is_directed_acyclic_graph(imports):
        raise SystemExit(f"packages import each other in a circle: {nx.find_cycle(imports)}")
    arrows = nx.transitive_reduction(imports)
    layers: dict[int, list[str]] = {}
    for number, layer in enumerate(nx.topological_generations(arrows.reverse())):
        layers[number] = sorted(layer, key=list(PACKAGES).index)
    layer_of = {name: number for number, layer in layers.items() for name in layer}
    width, box_width, box_height, gap = 800, 210, 50, 34
    top = 20
    place = {}
    for number, layer in layers.items():
        y = top + (len(layers) - 1 - number) * (box_height + gap)
        step = box_width + 40
        first = width / 2 - step * (len(layer) - 1) / 2
        for column, name in enumerate(layer):
            place[name] = (first + step * column, y)
    height = top + len(layers) * (box_height + gap) + box_height + 10
    lines = [_open(width, height)]
    for name in place:
        below = sorted(arrows[name], key=lambda other: place[other][0])
        for number, other in enumerate(below):
            if place[other][0] != place[name][0] and layer_of[name] - layer_of[other] > 1:  # around what lies between
                side = place[name][0] + (box_width / 2 if place[other][0] > place[name][0] else -box_width / 2)
                bend = f"H{place[other][0]:g}V{place[other][1] - 2:g}"
                lines.append(_path(f"M{side:g} {place[name][1] + box_height / 2:g}{bend}"))
                continue
            start = place[name][0] + _port(number, len(below), box_width)
            above = sorted(arrows.predecessors(other), key=lambda each: place[each][0])
            end = place[other][0] + _port(above.index(name), len(above), box_width)
            lines.append(_arrow(start, place[name][1] + box_height, end, place[other][1] - 2))
    for name, (x, y) in place.items():
        fill = "#fdf3dc" if name == "privacy" else "#f4f7fb"
        lines.append(_box(x - box_width / 2, y, box_width, box_height, fill))
        lines.append(_text(x, y + 21, name, "bold"))
        lines.append(_text(x, y + 40, PACKAGES[name], "small"))
    y = height - box_height - 10
    lines.append(_box(20, y, width - 40, box_height - 6, "#eee"))
    lines.append(
        _text(
            width / 2,
            y + 27,
            "io, errors, lazy, ties, registry: files, errors, choices, names of what ships; imported everywhere",
            "plain",
        )
    )
    return "\n".join([*lines, "</svg>\n"])


class Station(NamedTuple):
    """One step of a record's way: what happens, in two lines, and which name in which module does it."""

    title: str
    what: tuple[str, str]
    module: str
    name: str
    secret: bool = True


WAY = (
    Station("records", ("of one agent,", "checked by a schema"), "data/datasets.py", "AgentData"),
    Station("lot", ("each record is in it", "with probability q"), "privacy/lots.py", "draw_lot"),
    Station("preparation", ("one record at a time,", "public constants"), "data/prepare.py", "Isolated"),
    Station("gradient", ("∇ℓ of each record;", "two engines"), "privacy/gradients/choice.py", "choose_engine"),
    Station("clip", ("to length C;", "not finite: zero"), "privacy/gradients/clipping.py", "clip_factors"),
    Station("sum", ("exact, in", "any order"), "privacy/gradients/clipping.py", "exact_sums"),
    Station("noise, and ÷ L", ("own noise and masks,", "on a public grid"), "privacy/noise.py", "GridNoise"),
    Station("charge", ("one more query in", "the ledger; then g̃"), "privacy/accounts.py", "Account"),
    Station("rule Ψ", ("g̃ and neighbours'", "values: a new θ"), "algorithms/interface.py", "Algorithm", False),
    Station("message", ("encoded, counted,", "mixed by W"), "networks/stacked.py", "StackedNetwork", False),
)
ORACLE = (1, 8)
"""From which station to which, exclusive, everything happens inside the oracle."""


def draw_way() -> str:
    """Return the picture of one record's way, in two rows that are read as a U."""
    for station in WAY:
        _check(station)
    _check(Station("", ("", ""), "privacy/oracle.py", "PrivateOracle"))
    box_width, box_height, gap, left, tops = 196, 112, 28, 24, (52, 226)
    half = len(WAY) // 2
    width = 2 * left + half * box_width + (half - 1) * gap
    place = []
    for number in range(len(WAY)):
        column = number if number < half else len(WAY) - 1 - number
        place.append((left + column * (box_width + gap), tops[number // half]))
    lines = [_open(width, tops[1] + box_height + 48)]
    rows = [[place[number][0] for number in range(*ORACLE) if place[number][1] == top] for top in tops]
    above, below = (min(row) - 12 for row in rows)
    right, between = width - 10, (tops[0] + box_height + tops[1]) / 2
    lines.append(
        f'<path d="M{above:g} {tops[0] - 12}H{right}V{tops[1] + box_height + 12}H{below:g}V{between:g}H{above:g}Z" '
        'fill="none" stroke="#c79a2b" stroke-width="1.5" stroke-dasharray="6 4"/>'
    )
    note = "inside the oracle (privacy/oracle.py): nothing leaves before it is charged"
    lines.append(_text((above + right) / 2, 28, note, "plain"))
    middle = tops[0] + box_height / 2
    for number in range(len(WAY) - 1):
        (x0, y0), (x1, y1) = place[number], place[number + 1]
        if y0 != y1:
            lines.append(_arrow(x0 + box_width / 2, y0 + box_height, x1 + box_width / 2, y1 - 2))
        elif x1 > x0:
            lines.append(_arrow(x0 + box_width, middle, x1 - 2, middle))
        else:
            lines.append(_arrow(x0, y0 + box_height / 2, x1 + box_width + 2, y1 + box_height / 2))
    for station, (x, y) in zip(WAY, place, strict=True):
        lines.append(_box(x, y, box_width, box_height, "#fdf3dc" if station.secret else "#e6f3ea"))
        middle = x + box_width / 2
        lines.append(_text(middle, y + 24, station.title, "bold"))
        for number, text in enumerate(station.what):
            lines.append(_text(middle, y + 46 + 18 * number, text, "plain"))
        lines.append(_text(middle, y + 86, station.module, "path"))
        lines.append(_text(middle, y + 102, station.name, "path"))
    foot = "yellow: private, on the agent's own machine; green: derived from g̃ alone, may leave"
    lines.append(_text(width / 2, tops[1] + box_height + 36, foot, "small"))
    return "\n".join([*lines, "</svg>\n"])


def _check(station: Station) -> None:
    """Fail if a station's module or name does not exist."""
    path = SOURCE / station.module
    names = (
        {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if path.is_file()
        else set()
    )
    if station.name not in names:
        raise SystemExit(f"docs/architecture.py names {station.name} in src/tacit/{station.module}, which has none")


def _port(number: int, of: int, width: float) -> float:
    """Return where along a side the number-th of several arrows meets it, from the middle."""
    return width * ((number + 1) / (of + 1) - 0.5)


def _open(width: float, height: float) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" {FONT}>'
    return f'{head}\n{TIP}\n<rect width="{width:g}" height="{height:g}" rx="10" fill="#fff"/>'


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="#8a97a6"/>'


def _arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    return _path(f"M{x0:g} {y0:g}L{x1:g} {y1:g}")


def _path(way: str) -> str:
    return f'<path d="{way}" stroke="#444" stroke-width="1.5" fill="none" marker-end="url(#tip)"/>'


STYLES = {
    "bold": 'font-weight="bold" fill="#222"',
    "plain": 'font-size="14" fill="#333"',
    "small": 'font-size="13" fill="#666"',
    "path": 'font-family="monospace" font-size="10.5" fill="#555"',
}


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" {STYLES[style]}>{escape(text, quote=False)}</text>'


PICTURES = {"packages": draw_packages, "record": draw_way}


def main() -> None:
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw())
        print(f"{name}.svg")


if __name__ == "__main__":
    main()
