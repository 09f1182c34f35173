"""What may be compiled: operations whose compiled code gives a number the same bits whatever is beside it.

Compiled code processes eight or sixteen numbers at once. If its library takes another path for all of them because one is
large or special, as it does in sine and cosine, other records would affect how a record is rounded. So only operations known
not to do that are compiled; a model with any other is computed uncompiled.
"""

from operator import getitem

from torch import fx

from tacit.data.operations import CALCULATED, COMPARED, LAYERS, MOVED, operation_name
from tacit.privacy.gradients.batches import Unsupported

_KNOWN = MOVED | COMPARED | CALCULATED | LAYERS | {"convolution", "convolution_backward"}
_PRODUCTS = (1, 2, 3, 4)  # powers that the compiler turns into products
_PLAIN_NORMS = (1, 2, float("inf"), float("-inf"))


def check_compilable(graph: fx.Graph) -> None:
    """Raise `Unsupported` if a graph has an operation not known to compute every number by itself."""
    for node in graph.nodes:
        if node.op == "get_attr":
            raise Unsupported("the model has frozen parameters or buffers, which are not compiled")
        if node.op == "call_function":
            name = "getitem" if node.target is getitem else operation_name(node.target)
            if name not in _KNOWN or not _is_plain(name, node):
                raise Unsupported(f"compiled, the rounding of {name} may depend on neighbouring numbers")


def _is_plain(name: str, node: fx.Node) -> bool:
    """Return whether a power is a product, or a norm needs no other powers."""
    if name == "pow":
        return node.args[1] in _PRODUCTS
    if name == "linalg_vector_norm":
        return (node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)) in _PLAIN_NORMS
    return True
