"""The settings of a run file as a `Training` to check. A data set that is not on this machine is not downloaded."""

import torch

from tacit.data import IID, AgentData, DataSet
from tacit.data.catalog import absent, find_published
from tacit.data.published import Published
from tacit.errors import InvalidInput
from tacit.registry import DATA_SETS
from tacit.runs.config import RunConfig
from tacit.training.settings import Training


def training_of(config: RunConfig) -> tuple[Training, str]:
    """Return the training of a run file, and a text that says where the shape of its records comes from."""
    if not config.private:
        raise InvalidInput("these settings have private = false and promise nothing, so there is nothing to check")
    if config.dataset not in DATA_SETS or absent(config.dataset, config.data_dir) is None:
        data, about = config.load_data(), f"records made up in the shape of {config.dataset}"
    else:
        data = _stand_in(find_published(config.dataset), config)
        about = f"records made up in the published shape of {config.dataset}, which is not here, in equal parts"
    graph = config.load_graph(data.agents)
    return config.training(name="check", ledger=None, data=data, graph=graph), about


def _stand_in(declared: Published, config: RunConfig) -> AgentData:
    """Return a table of blank records that share one record's memory."""
    blank = torch.zeros(1, *declared.shape, dtype=torch.uint8).expand(declared.records, *declared.shape)
    targets = torch.arange(declared.records) % declared.classes
    table = DataSet.from_records(name=config.dataset, train=(blank, targets), classes=declared.classes)
    data = table.split(config.agents, IID(), seed=config.seed)
    return data.pooled() if config.is_pooled else data
