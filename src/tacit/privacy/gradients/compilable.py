"""What may be compiled: operations whose compiled code gives a number the same bits whatever stands beside it.

Compiled code works on eight or sixteen numbers at once. Where its library takes another way for all of them because one is
large or odd, as it does in sine and cosine, a record would be rounded by others. So only operations are compiled of which
that is known not to be so; whatever else a model does is computed uncompiled.
"""

from operator import getitem

from torch import fx

from tacit.data.operations import CALCULATED, COMPARED, LAYERS, MOVED, name_of
from tacit.privacy.gradients.batches import Unsupported

_KNOWN = MOVED | COMPARED | CALCULATED | LAYERS | {"convolution", "convolution_backward"}
_PRODUCTS = (1, 2, 3, 4)  # powers that the compiler turns into products
_PLAIN_NORMS = (1, 2, float("inf"), float("-inf"))


def check_compilable(graph: fx.Graph) -> None:
    """Raise `Unsupported` if a graph does anything of which it is not known that every number is computed by itself."""
    for node in graph.nodes:
        if node.op == "get_attr":
            raise Unsupported("the model has frozen parameters or buffers, which are not compiled")
        if node.op == "call_function":
            name = "getitem" if node.target is getitem else name_of(node.target)
            if name not in _KNOWN or not _is_plain(name, node):
                raise Unsupported(f"compiled, {name} may be rounded by what stands beside a number")


def _is_plain(name: str, node: fx.Node) -> bool:
    """Tell whether a power is a product, and a norm one without other powers."""
    if name == "pow":
        return node.args[1] in _PRODUCTS
    if name == "linalg_vector_norm":
        return (node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)) in _PLAIN_NORMS
    return True
