"""The settings of a run file as a `Training` to check. A data set that is not on this machine is not downloaded."""

from dataclasses import dataclass

import torch

from tacit.data import IID, AgentData, DataSet, data_folder
from tacit.data.download import RemoteFile, locate
from tacit.data.official import CIFAR10, CIFAR100, FASHION_MNIST, MNIST
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig
from tacit.training.settings import Training


@dataclass(frozen=True)
class _Declared:
    """Public facts of a data set: its files, and the shape, number and classes of its records."""

    files: tuple[RemoteFile, ...]
    shape: tuple[int, ...]
    records: int
    classes: int


_DECLARED = {
    "mnist": _Declared(MNIST, (1, 32, 32), 60_000, 10),
    "fashion-mnist": _Declared(FASHION_MNIST, (1, 32, 32), 60_000, 10),
    "cifar10": _Declared((CIFAR10,), (3, 32, 32), 50_000, 10),
    "cifar100": _Declared((CIFAR100,), (3, 32, 32), 50_000, 100),
}


def training_of(config: RunConfig) -> tuple[Training, str]:
    """Return the training of a run file, and a text that says where the shape of its records comes from."""
    if not config.private:
        raise InvalidInput("these settings have private = false and promise nothing, so there is nothing to check")
    declared = _DECLARED.get(config.dataset)
    if declared is None or _is_there(declared, config):
        data, about = config.load_data(), f"records made up in the shape of {config.dataset}"
    else:
        data = _stand_in(declared, config)
        about = f"records made up in the published shape of {config.dataset}, which is not here, in equal parts"
    graph = config.load_graph(data.agents)
    return config.training(name="check", ledger=None, data=data, graph=graph), about


def _is_there(declared: _Declared, config: RunConfig) -> bool:
    folder = data_folder(config.data_dir)
    return all(locate(path, folder) is not None for file in declared.files for path in file.layout)


def _stand_in(declared: _Declared, config: RunConfig) -> AgentData:
    """Return a table of blank records that share one record's memory."""
    blank = torch.zeros(1, *declared.shape, dtype=torch.uint8).expand(declared.records, *declared.shape)
    targets = torch.arange(declared.records) % declared.classes
    table = DataSet.from_records(name=config.dataset, train=(blank, targets), classes=declared.classes)
    data = table.split(config.agents, IID(), seed=config.seed)
    return data.pooled() if config.algorithm == "sgd" else data
