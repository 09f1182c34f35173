"""Tables and fields for tests of schemas."""

import torch
from torch import nn

from tacit.data import AgentData, DataSet, Field

LABEL = Field(shape=(), dtype=torch.int64, low=0, high=9)


TOKENS = Field(shape=(4,), dtype=torch.int64, low=0, high=19)


def data_of(inputs, targets, **more):
    return DataSet.from_records(name="mine", train=(inputs, targets), **more)


class Reads(nn.Module):
    """Reads tokens in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.words, self.few = nn.Embedding(20, 8), nn.Embedding(5, 8)
        self.positions = nn.Embedding(4, 8)
        self.out = nn.Linear(8, 10)

    def forward(self, x):
        return self.out(self.how(self, x).mean(dim=1))


DIRECT = {
    "as they are": (lambda model, x: model.words(x), 19),
    "with positions": (lambda model, x: model.words(x) + model.positions(torch.arange(4)), 19),
    "by function": (lambda model, x: nn.functional.embedding(x, model.words.weight), 19),
    "turned": (lambda model, x: model.words(x.T).transpose(0, 1), 19),
    "by column": (
        lambda model, x: torch.stack([model.few(x[:, 0]), *(model.words(x[:, i]) for i in (1, 2, 3))], 1),
        19,
    ),
    "few": (lambda model, x: model.few(x), 4),
}


def parts(*bad):
    """Three parties with ten sequences each; `bad` holds (party, record, place, token)."""
    tables = [torch.randint(0, 20, (10, 4), generator=torch.Generator().manual_seed(i)) for i in range(3)]
    for party, record, place, token in bad:
        tables[party][record, place] = token
    return [(table, torch.arange(10)) for table in tables]


def parties(*bad, owners=("north", "south", "west"), **more):
    return AgentData.from_parts(parts(*bad), name="words", owners=owners, classes=10, **more)
