"""Records, who holds which of them, and where they come from.

Nothing here knows about privacy or training: the oracle is what reads `AgentData`, and nothing else should.
"""

from tacit.data.catalog import load, synthetic
from tacit.data.datasets import AgentData, DataSet
from tacit.data.download import data_folder
from tacit.data.fields import Field
from tacit.data.partition import IID, ByClass, Dirichlet, Partition, class_fractions
from tacit.data.prepare import Normalise, bytes_to_unit
from tacit.data.records import Records, RecordsLike
from tacit.data.scattering import scattered, scattering
from tacit.data.schema import Schema

__all__ = [
    "IID",
    "AgentData",
    "ByClass",
    "DataSet",
    "Dirichlet",
    "Field",
    "Normalise",
    "Partition",
    "Records",
    "RecordsLike",
    "Schema",
    "bytes_to_unit",
    "class_fractions",
    "data_folder",
    "load",
    "scattered",
    "scattering",
    "synthetic",
]
