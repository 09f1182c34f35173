"""One name for one thing: no two classes of the package share a name."""

import ast
from collections import defaultdict
from pathlib import Path

import tacit

ROOT = Path(tacit.__file__).parent
ROWS_OF_AGENTS = "Stacked"  # in the signatures of rules; also the runtime that has such rows


def test_no_two_classes_share_a_name():
    """A private class may not have the name of a public one either, behind its underscore."""
    places = classes()
    assert len(places) > 100
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    assert [name for name in places if name.startswith("_") and name.lstrip("_") in places] == []


def test_no_type_has_the_name_of_a_class():
    """A union, a callable or an array that is named at the top of a module is another thing than a class of that name."""
    named, places = defaultdict(list), classes()
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.Assign) and is_type(node.value):
                for name in (target.id for target in node.targets if isinstance(target, ast.Name)):
                    named[name].append(path)
    assert len(named) > 50
    assert {
        name: [*where, *places[name]] for name, where in named.items() if name in places and name != ROWS_OF_AGENTS
    } == {}


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def classes():
    places = defaultdict(list)
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return places


def is_type(value):
    """Say whether an expression is a type, such as a union or `Callable[...]`. An option of a command is not one, nor is a TypeVar."""
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr) and is_type(value.left)
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name | ast.Attribute):
        wrapped = value.slice.elts[1] if ast.unparse(value.value) == "Annotated" else None
        return not (isinstance(wrapped, ast.Call) and ast.unparse(wrapped.func) != "Field")
    return isinstance(value, ast.Name | ast.Attribute)
