"""One name for one thing: no two classes of the package share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent


def test_no_two_classes_share_a_name():
    """A private class may not have the name of a public one either, behind its underscore."""
    places = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert len(places) > 100
    public = {name: where for name, where in places.items() if not name.startswith("_")}
    assert {name: where for name, where in public.items() if len(where) > 1} == {}
    hidden = {name: where for name, where in places.items() if name.startswith("_") and name.lstrip("_") in public}
    assert hidden == {}
