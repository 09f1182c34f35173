"""What may be compiled: operations whose compiled code gives a number the same bits whatever stands beside it.

Compiled code works on eight or sixteen numbers at once. Where its library takes another way for all of them because one is
large or odd, as it does in sine and cosine, a record would be rounded by others. So only operations are compiled of which
that is known not to be so; whatever else a model does is computed uncompiled.
"""

from typing import Any

from torch import fx

from tacit.privacy.engines.steps import Unsupported

_MOVED = """
    alias arange as_strided cat clone constant_pad_nd copy detach embedding empty_like expand fill flip gather getitem index
    index_add index_put index_select masked_fill new_empty new_full new_zeros ones ones_like permute repeat roll
    scalar_tensor scatter scatter_add select select_backward slice slice_backward slice_scatter split split_with_sizes squeeze
    stack t to_copy transpose tril triu unbind unfold unfold_backward unsafe_view unsqueeze upsample_nearest1d
    upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward view where zeros zeros_like full full_like
    reshape empty
"""
_COMPARED = """
    abs amax amin argmax argmin bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min cummax cummin eq floor ge
    gt isfinite isinf isnan le logical_and logical_not logical_or lt max maximum min minimum ne neg relu round sgn sign sort
    topk trunc
"""
_CALCULATED = """
    add addmm baddbmm bmm convolution convolution_backward cumprod cumsum div dot exp exp2 expm1 erf linalg_vector_norm log
    log1p log2 logsumexp mean mm mul mv pow prod reciprocal rsqrt rsub sigmoid sqrt std sub sum tanh var var_mean
    sigmoid_backward tanh_backward
"""
_LAYERS = """
    adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_max_pool2d adaptive_max_pool2d_backward avg_pool2d
    avg_pool2d_backward celu elu elu_backward gelu gelu_backward hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward huber_loss huber_loss_backward leaky_relu leaky_relu_backward
    log_sigmoid_backward log_sigmoid_forward log_softmax log_softmax_backward_data max_pool2d_with_indices
    max_pool2d_with_indices_backward mse_loss mse_loss_backward native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward safe_softmax silu silu_backward smooth_l1_loss smooth_l1_loss_backward
    softmax softmax_backward_data softplus softplus_backward softshrink softshrink_backward threshold threshold_backward
"""
_KNOWN = frozenset(" ".join((_MOVED, _COMPARED, _CALCULATED, _LAYERS)).split())
_PRODUCTS = (1, 2, 3, 4)  # powers that the compiler turns into products
_PLAIN_NORMS = (1, 2, float("inf"), float("-inf"))


def check_compilable(graph: fx.Graph) -> None:
    """Raise `Unsupported` if a graph does anything of which it is not known that every number is computed by itself."""
    for node in graph.nodes:
        if node.op == "get_attr":
            raise Unsupported("the model has frozen parameters or buffers, which are not compiled")
        if node.op == "call_function":
            name = _name(node.target)
            if name not in _KNOWN or not _is_plain(name, node):
                raise Unsupported(f"compiled, {name} may be rounded by what stands beside a number")


def _name(target: Any) -> str:
    """Return an operation's name without its form: `aten._softmax.default` and `aten.exp_.default` are softmax and exp."""
    name = getattr(target, "__name__", str(target)) if not hasattr(target, "overloadpacket") else str(target)
    return name.removeprefix("aten.").split(".")[0].strip("_")


def _is_plain(name: str, node: fx.Node) -> bool:
    """Tell whether a power is a product, and a norm one without other powers."""
    if name == "pow":
        return node.args[1] in _PRODUCTS
    if name == "linalg_vector_norm":
        return (node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)) in _PLAIN_NORMS
    return True
