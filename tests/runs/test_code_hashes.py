"""What counts as the same code: what it computes, not how it is written; and nothing of the data that it refers to."""

import functools
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from tacit.data import DataSet, Normalise
from tacit.runs.code_hashes import code_sha256, tensor_sha256, written

TOP = 3


def compiled(source, **names):
    """Run a text and return what it calls `f`."""
    scope = {"__name__": "somewhere", **names}
    exec(source, scope)
    return scope["f"]


SAME = [
    ("def f(x):\n    return x + 1", "# more\n\n\ndef f(x):\n\n    return x + 1  # one more"),
    ("f = lambda x: x + 1", "\n\nf = (\n    lambda x: x + 1\n)"),
    ("def f(x):\n    return x in {'a', 'b', 'c'}", "def f(x):\n    return x in {'c', 'b', 'a'}"),
    (
        "def g(x):\n    return x\n\n\ndef f(x):\n    return g(x)",
        "def f(x):\n    return g(x)\n\n\ndef g(x):\n    return x",
    ),
    ("class f:\n    a = 1\n\n    def b(self):\n        pass", "class f:\n    def b(self):\n        pass\n\n    a = 1"),
]
OTHER = [
    ("def f(x):\n    return x + 1", "def f(x):\n    return x + 2"),
    ("def f(x):\n    return x + 1", "def f(x):\n    return x - 1"),
    ("def f(x, y=1):\n    return x + y", "def f(x, y=2):\n    return x + y"),
    (
        "def g(x):\n    return x\n\n\ndef f(x):\n    return g(x)",
        "def g(x):\n    return 2 * x\n\n\ndef f(x):\n    return g(x)",
    ),
    ("N = 3\n\n\ndef f(x):\n    return x + N", "N = 4\n\n\ndef f(x):\n    return x + N"),
    ("N = (1, 2)\n\n\ndef f(x):\n    return x + N[0]", "N = (3, 2)\n\n\ndef f(x):\n    return x + N[0]"),
    (
        "def f(x):\n    def g(y):\n        return y\n    return g(x)",
        "def f(x):\n    def g(y):\n        return -y\n    return g(x)",
    ),
    ("class f:\n    a = 1", "class f:\n    a = 2"),
    ("class f:\n    def b(self):\n        return 1", "class f:\n    def b(self):\n        return 2"),
    (
        "class A:\n    def b(self):\n        return 1\n\n\nclass f(A):\n    pass",
        "class A:\n    def b(self):\n        return 2\n\n\nclass f(A):\n    pass",
    ),
    (f"def f(x):\n    return x in {tuple(range(50))}", f"def f(x):\n    return x in {(*range(49), 0)}"),
    (f"def f(x):\n    return {[f'a{i}' for i in range(40)]}", f"def f(x):\n    return {[f'b{i}' for i in range(40)]}"),
    (
        "import functools\n\n\n@functools.cache\ndef f(x):\n    return 1",
        "import functools\n\n\n@functools.cache\ndef f(x):\n    return 2",
    ),
    (
        "import functools\n\n\nclass f:\n    @functools.cached_property\n    def a(self):\n        return 1",
        "import functools\n\n\nclass f:\n    @functools.cached_property\n    def a(self):\n        return 2",
    ),
    ("f = lambda x: x.sum(dim=0)", "f = lambda x: x.sum(dim=1)"),
    ("import math\nf = math.sin", "import math\nf = math.cos"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_computes_the_same_in_the_same_way_is_the_same(one, other):
    assert code_sha256(compiled(one)) == code_sha256(compiled(other))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_what_computes_something_else_is_something_else(one, other):
    assert code_sha256(compiled(one)) != code_sha256(compiled(other))


def test_what_a_function_was_given_counts():
    def scaled(factor):
        return lambda x: factor * x

    assert code_sha256(scaled(2)) == code_sha256(scaled(2)) != code_sha256(scaled(3))
    assert code_sha256(functools.partial(max, 1)) != code_sha256(functools.partial(max, 2))
    assert code_sha256(functools.partial(max, key=len)) != code_sha256(functools.partial(max, key=abs))
    assert code_sha256(Normalise(mean=(0.0,), std=(1.0,))) != code_sha256(Normalise(mean=(0.5,), std=(1.0,)))
    assert code_sha256(nn.CrossEntropyLoss(reduction="none")) == code_sha256(nn.CrossEntropyLoss(reduction="none"))


def test_data_that_code_refers_to_leaves_no_trace():
    """Not of tensors, lists, dictionaries or objects: these may be private records."""

    @dataclass
    class Clinic:
        ages: list

    def facts(seed):
        table = torch.randn(20, 3, generator=torch.Generator().manual_seed(seed))
        own = DataSet.from_records(name="own", train=(table, torch.arange(20) % 3), classes=3)
        held = {
            "table": table,
            "rows": table.tolist(),
            "names": {str(seed): seed},
            "own": own,
            "clinic": Clinic([seed]),
        }
        texts = [code_sha256(compiled(f"def f(x):\n    return {name}", **held)) for name in held]
        given = [code_sha256(functools.partial(max, thing)) for thing in held.values()]
        return texts + given + [code_sha256(referring(thing)) for thing in held.values()]

    def referring(thing):
        return lambda x: thing

    assert facts(1) == facts(2)


def test_places_in_memory_and_the_order_of_hashes_make_no_difference():
    program = (
        "import sys; sys.path.insert(0, {!r}); from test_code_hashes import *; "
        "print(code_sha256(compiled(OTHER[3][0]), compiled(SAME[2][0]), Rule, Rule()), written(Rule()))"
    ).format(str(__file__).rpartition("/")[0])
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    here = code_sha256(compiled(OTHER[3][0]), compiled(SAME[2][0]), Rule, Rule()), written(Rule())
    assert done.stdout == " ".join(here) + "\n"
    assert here[0].startswith(f"python {sys.version_info.major}.{sys.version_info.minor}: ")


@dataclass(frozen=True)
class Rule:
    rho: float = 0.5
    steps: tuple[int, ...] = (1, 2)

    def init(self, theta):
        return {theta, TOP, "word", "other"}


def test_settings_are_written_without_places_in_memory():
    assert written(Rule(rho=0.25)) == "Rule(rho=0.25, steps=[1, 2])"
    assert written([1, 2.5, "a", None, True]) == "[1, 2.5, 'a', None, True]"
    assert " at 0x" not in written(lambda x: x)
    assert " at 0x" not in written(object())


def test_tensors_are_distinguished_by_type_shape_and_value():
    one = torch.arange(6.0)
    assert tensor_sha256(one) == tensor_sha256(one.clone())
    others = [one.double(), one.reshape(2, 3), one + 1, one.bfloat16(), one > 2, torch.tensor(3.0), one[:0]]
    assert len({tensor_sha256(each) for each in [one, *others]}) == 8
