"""Models, and what turns any `nn.Module` into a function of one flat parameter vector."""

from tacit.models.checks import check_module
from tacit.models.functional import FlatModel, Loss, cross_entropy
from tacit.models.views import CROSS, RecordView, Shift, Views, views_cross_entropy
from tacit.models.zoo import build, convnet, logistic, mlp, resnet9
from tacit.registry import LOSSES, MODELS

__all__ = [
    "CROSS",
    "LOSSES",
    "MODELS",
    "FlatModel",
    "Loss",
    "RecordView",
    "Shift",
    "Views",
    "build",
    "check_module",
    "convnet",
    "cross_entropy",
    "logistic",
    "mlp",
    "resnet9",
    "views_cross_entropy",
]
