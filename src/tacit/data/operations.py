"""Operations that work on every number, or every record's row of numbers, by itself.

Under `vmap` an operation of torch computes many records in one call. Those listed here compute each record as if it
were alone, as far as reading and testing can show. A model that uses any other (factorisations, Fourier transforms,
custom operators) is computed one record at a time.
"""

import threading
from typing import Any

import torch
from torch import Tensor


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVED = _names(
    """
    alias arange as_strided broadcast_to cat chunk clone col2im constant_pad_nd contiguous copy detach diag_embed diagonal
    diagonal_backward diagonal_copy diagonal_scatter embedding embedding_dense_backward empty empty_like empty_strided expand
    eye fill flatten flip full full_like gather getitem im2col index index_add index_copy index_put index_select
    lift_fresh lift_fresh_copy linspace masked_fill masked_scatter masked_select movedim narrow new_empty new_empty_strided
    new_full new_ones new_zeros ones ones_like permute pixel_shuffle pixel_unshuffle reflection_pad1d
    reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward repeat replication_pad1d replication_pad1d_backward
    replication_pad2d replication_pad2d_backward reshape reshape_alias resize roll rot90 scalar_tensor scatter scatter_add
    scatter_reduce select select_backward select_scatter slice slice_backward slice_scatter split split_with_sizes squeeze
    stack swapaxes t take to to_copy transpose tril tril_indices triu triu_indices unbind unfold unfold_backward
    unsafe_split unsafe_split_with_sizes unsafe_view unsqueeze upsample_nearest1d upsample_nearest1d_backward
    upsample_nearest2d upsample_nearest2d_backward view view_as_complex view_as_real view_copy where zero zeros zeros_like
    """
)
COMPARED = _names(
    """
    abs all amax amin any argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor bucketize ceil clamp clamp_max
    clamp_min count_nonzero cummax cummin eq floor ge gt isfinite isin isinf isnan isneginf isposinf le logical_and
    logical_not logical_or logical_xor lt max maximum min minimum ne neg relu round searchsorted sgn sign signbit sort topk
    trunc
    """
)
CALCULATED = _names(
    """
    add addmm baddbmm bmm cumprod cumsum div dot exp exp2 expm1 erf linalg_vector_norm log log1p log2 logsumexp mean mm mul mv
    pow prod reciprocal rsqrt rsub sigmoid sigmoid_backward sqrt std sub sum tanh tanh_backward var var_mean
    """
)
LAYERS = _names(
    """
    adaptive_avg_pool2d adaptive_avg_pool2d_backward adaptive_max_pool2d adaptive_max_pool2d_backward avg_pool2d
    avg_pool2d_backward celu elu elu_backward gelu gelu_backward hardsigmoid hardsigmoid_backward hardswish
    hardswish_backward hardtanh hardtanh_backward huber_loss huber_loss_backward leaky_relu leaky_relu_backward
    log_sigmoid_backward log_sigmoid_forward log_softmax log_softmax_backward_data max_pool2d_with_indices
    max_pool2d_with_indices_backward mse_loss mse_loss_backward native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward safe_softmax silu silu_backward smooth_l1_loss smooth_l1_loss_backward
    softmax softmax_backward_data softplus softplus_backward softshrink softshrink_backward threshold threshold_backward
    """
)
_NOT_COMPILED = _names(
    """
    acos acosh addcdiv addcmul addmv adaptive_avg_pool3d adaptive_avg_pool3d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward angle asin asinh atan atan2 atanh avg_pool3d avg_pool3d_backward binary_cross_entropy
    binary_cross_entropy_backward bitwise_left_shift bitwise_right_shift complex conj convolution convolution_backward
    copysign cos cosh deg2rad digamma erfc erfinv floor_divide fmax fmin fmod frac glu glu_backward grid_sampler_2d
    grid_sampler_2d_backward hardshrink hardshrink_backward heaviside hypot i0 igamma igammac imag kl_div kthvalue lerp
    lgamma log10 logaddexp logaddexp2 logcumsumexp logit logit_backward max_pool3d_with_indices
    max_pool3d_with_indices_backward median mish mish_backward mode mvlgamma nan_to_num nanmedian nextafter nll_loss2d_backward
    nll_loss2d_forward nll_loss_backward nll_loss_forward norm polar polygamma positive prelu_kernel prelu_kernel_backward
    rad2deg real remainder renorm rms_norm sin sinc sinh soft_margin_loss soft_margin_loss_backward special_bessel_j0
    special_bessel_j1 special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri
    special_xlog1py native_batch_norm native_batch_norm_backward square tan trilinear upsample_bicubic2d
    upsample_bicubic2d_backward upsample_bilinear2d
    upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward xlogy
    """
)
_APART = MOVED | COMPARED | CALCULATED | LAYERS | _NOT_COMPILED
SEEN = threading.local()  # `depth`: the nesting of torch calls under a guard, if one watches this thread
_KNOWN: dict[Any, bool] = {}  # for each form of an operation met so far
_CONVOLUTIONS = frozenset([torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default])
_CTC = "ctc_loss"


def operation_name(operation: Any) -> str:
    """Return an operation's name without its form: `aten._softmax.default` and `aten.exp_.default` are softmax and exp."""
    return str(operation).removeprefix("aten.").split(".")[0].strip("_")


def is_apart(operation: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an operation computes every record by itself.

    Convolutions that are not computed as products do so in float32, but not always in float64.
    """
    if operation not in _KNOWN:
        _KNOWN[operation] = operation.namespace in ("aten", "prim", "prims") and operation_name(operation) in _APART
    if operation in _CONVOLUTIONS and any(isinstance(each, Tensor) and each.dtype == torch.float64 for each in args):
        return False
    return _KNOWN[operation]


def is_hidden() -> bool:
    """Return whether an operation comes from no call that a guard observed, as those of compiled script do."""
    return getattr(SEEN, "depth", None) == 0


def check_labels(operation: Any, args: tuple[Any, ...]) -> None:
    """Raise if an operation would read beyond a record: torch's CTC loss checks neither labels nor lengths."""
    if operation_name(operation) != _CTC:
        return
    log_probs, targets, *lengths = args[:4]
    steps, labels = (torch.as_tensor(each) for each in lengths)
    room, classes = targets.shape[-1], log_probs.shape[-1]
    used = labels.sum() if targets.ndim == 1 else labels  # of all records, concatenated, or of each
    inside = ((targets >= 0) & (targets < classes)).all() & ((steps >= 0) & (steps <= log_probs.shape[0])).all()
    if not bool(inside & (labels >= 0).all() & (used <= room).all()):
        raise ValueError("a label is not among the classes, or a length is too long")
