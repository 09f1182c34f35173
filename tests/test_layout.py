"""Dependencies point one way, so that an algorithm reaches data only through the oracle, and every package can be read by itself."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import tacit

ROOT = Path(tacit.__file__).parent
# The one table of packages and their rooms, from the bottom up: what each holds, which packages it may import, and which it never may.
# `python tests/test_layout.py` prints it as Markdown.
HOUSE = """
errors, lazy        | errors; imports on first use                              | nothing         |
ties                | choices among computed numbers, by a stated tolerance     | nothing         |
registry            | what ships, by name: one line each                        | nothing         |
io                  | files, JSON lines, hash chains, locks, processes          | errors, lazy    |
graphs              | graphs by name, mixing weights, measures, search          | errors, lazy, ties, registry, io |
data                | records, schemas, partitions, published data sets         | errors, lazy, registry, io |
models              | shipped models and losses, flat parameter vectors         | everything above | graphs
networks            | topologies, schedules, codecs, stacked and wired networks | everything above | data, models
networks/transports | what carries bytes between agents                         | everything above | data, models, networks.stacked
algorithms          | update rules, one file each                               | everything above | data, models
privacy             | mechanisms, accounting, ledger, oracle, lots, noise       | everything above | algorithms, networks
privacy/gradients   | per-sample gradients, clipping, exact sums: the engines   | everything above | privacy.oracle, privacy.ledger, privacy.store
training            | settings, planning, session, rounds, scores, results      | everything above |
runs                | run folders: settings, events, checkpoints, resume        | everything above |
cluster             | one run on several processes: ranks, placement, launching | everything above |
tuning              | searches for settings, and their price                    | everything above | cluster
api                 | tacit.train, resume, load                                 | everything above |
evidence            | archives for auditors, signatures, verification           | everything above | api
report              | pages and figures from run folders, never from a session  | everything above | evidence, api, training
report/figures      | matplotlib figures, the palette and the style             | everything above | evidence, api, training, report.html
report/html         | pages: one self-contained file each                       | everything above | evidence, api, training
peer                | one agent beside its own data: identity, secrets, service  | everything above | api, evidence
peer/protocol       | how neighbours agree on what a round used                 | errors, io      |
peer/agreement      | what all members hold and sign                            | everything above | api, evidence, report
peer/wire           | gRPC streams under TLS 1.3, pinned by the agreement       | errors, io      | peer.service
audit               | attacks on a run, and what they prove                     | everything above |
audit/attacks       | what an attacker does                                     | everything above | audit.pages
audit/bounds        | what its success proves about ε                           | everything above | audit.pages
audit/linear        | exact views of linear rules                               | everything above | audit.pages
audit/noise         | whether noise and lots are as stated                      | everything above | audit.pages
audit/detectors     | faults in settings and code                               | everything above | audit.pages
audit/pages         | audits as pages                                           | everything above |
experiments         | the paper's figures and tables, one file each             | everything above |
cli                 | the command line                                          | everything above |
cli/terminal        | options, tables, progress, pictures, errors               | everything above | cli.audit
cli/audit           | `tacit audit`                                             | everything above | cli.commands
cli/peer            | `tacit peer`                                              | everything above | cli.commands
cli/commands        | every other command, a module of its name each            | everything above |
"""


class Package(NamedTuple):
    names: tuple[str, ...]
    holds: str
    imports: str
    never: str

    def may_import(self, module):
        """Say whether a module of another package, or of another room, may be imported here."""
        if any(f"{module}.".startswith(f"{name}.") for name in _listed(self.never)):
            return False
        top = module.split(".")[0]
        own = self.names[0].split("/")[0]
        return top in {own, "__version__"} | self.allowed

    @property
    def allowed(self):
        tops = [name for package in PACKAGES[: PACKAGES.index(self)] for name in package.names if "/" not in name]
        named = set(tops) if self.imports == "everything above" else set(_listed(self.imports)) - {"nothing"}
        assert named <= set(tops)
        return named - set(self.names)


def _listed(cell):
    return [name.strip() for name in cell.split(",") if name.strip()]


def _package(row):
    names, holds, imports, never = (cell.strip() for cell in row.split("|"))
    return Package(tuple(_listed(names)), holds, imports, never)


PACKAGES = [_package(row) for row in HOUSE.strip().splitlines()]
BY_NAME = {name: package for package in PACKAGES for name in package.names}


def as_markdown():
    rows = [(", ".join(f"`{name}`" for name in each.names), each.holds, each.imports, each.never) for each in PACKAGES]
    head = [("package", "what it holds", "may import", "but never"), ("---",) * 4]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [*head, *rows])


def modules(name):
    """Return the modules of a package, without those of its rooms, which have rows of their own."""
    path = ROOT / name
    rooms = [ROOT / other for other in BY_NAME if other.startswith(f"{name}/")]
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    found = [each for each in found if each.name != "__main__.py"]  # an entry point calls the command line
    return [each for each in found if not any(each.is_relative_to(room) for room in rooms)]


def imports(path):
    """Yield every module of Tacit that a file imports, in whatever function, without the leading `tacit.`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found = [_module(node.module, alias.name) for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("tacit.") for name in found if name.startswith("tacit."))


def _module(package, name):
    """Return what is imported by `from package import name`; names of `tacit` itself come through its front door."""
    front = package == "tacit" and name in tacit.__all__ and not (ROOT / name).is_dir()
    return "tacit.api" if front else f"{package}.{name}"


def test_the_table_has_every_package_and_every_room():
    found = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    found |= {f"{path.parent.parent.name}/{path.parent.name}" for path in ROOT.glob("*/*/__init__.py")}
    assert found - {"__init__", "__main__"} == set(BY_NAME)
    assert not list(ROOT.glob("*/*/*/__init__.py")), "a room in a room"


def test_contributing_has_every_package_and_every_room():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    tree = text.partition("```text")[2].partition("```")[0]
    for name in BY_NAME:
        shown = f"{name.rpartition('/')[2]}/" if (ROOT / name).is_dir() else f"{name}.py"
        assert re.search(rf"(?<!\w){re.escape(shown)}", tree), f"CONTRIBUTING.md does not show {name}"


@pytest.mark.parametrize("name", BY_NAME)
def test_a_package_imports_only_what_the_table_allows(name):
    files = modules(name)
    assert files
    for path in files:
        wrong = sorted({module for module in imports(path) if not BY_NAME[name].may_import(module)})
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(wrong)}"


def test_the_rules_that_matter_most_are_in_the_table():
    """Whoever edits the table to silence a test has to edit this one, too."""
    for name, module in (
        ("algorithms", "privacy.oracle"),
        ("algorithms", "data"),
        ("networks", "data.records"),
        ("privacy", "training.session"),
        ("report", "training.session"),
        ("report", "api"),
        ("report/html", "training"),
        ("runs", "cli"),
        ("report/figures", "report.html.charts"),
        ("privacy/gradients", "privacy.oracle"),
    ):
        assert not BY_NAME[name].may_import(module), f"{name} may import {module}"


def test_no_algorithm_mentions_privacy():
    """The private and the non-private version are the same file."""
    for path in (ROOT / "algorithms").glob("*.py"):
        code = ast.unparse(ast.parse(path.read_text()))
        for word in ("epsilon", "ledger", "oracle(", "noise_multiplier"):
            assert word not in code.lower() or path.name == "interface.py", f"{path.name} says {word}"


if __name__ == "__main__":
    print(as_markdown())
