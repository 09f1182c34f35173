"""The public records that teachers are asked about between sites: pinned in the agreement, and those of a published data set alone.

Students descend on these records without noise, and all neighbours read the models. So no site's own records may be among them, whatever a
site calls them: they are those of a data set that everybody can load, and every site has the same ones or is refused.
"""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tacit.data import DataSet
from tacit.data.inputs import Inputs, parts
from tacit.errors import DataError, InvalidInput
from tacit.io.validation import mistake
from tacit.runs.specs import is_shipped
from tacit.runs.user_code import is_user_code
from tacit.training.session import Session

KEY = "public"
"""Where the agreement has them, under `data`."""


class PublicRecords(BaseModel):
    """What an agreement says of the records that are voted on."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    dataset: str
    records: int = Field(ge=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")

    @staticmethod
    def of(dataset: DataSet, records: int) -> "PublicRecords":
        """Describe as many public records of a data set; one that is not published is refused."""
        if not dataset.published:
            raise DataError(
                f"{dataset.name} is not a published data set, and teachers label only records that all sites can load and compare: students "
                "learn from these without noise. Use a rule of noisy gradients, such as dsgt"
            )
        pool = dataset.with_pool(records).pool
        assert pool is not None
        return PublicRecords(dataset=dataset.name, records=records, sha256=hash_of(pool))

    @staticmethod
    def read(declared: Mapping[str, Any]) -> "PublicRecords":
        """Read what an agreement says."""
        try:
            return PublicRecords(**declared)
        except (ValidationError, TypeError) as error:
            lines = [] if isinstance(error, TypeError) else error.errors()
            words = "; ".join(mistake(f"data.{KEY}.{each['loc'][0]}", each) for each in lines[:3])
            raise InvalidInput(words or f"data.{KEY} of the agreement is {declared!r}; it must be a table") from None


def check_public_records(named: str, dataset: DataSet, declared: Mapping[str, Any] | None) -> None:
    """Refuse a site whose records are not of the published data set that was agreed on, where teachers vote. `named` is how the site names them."""
    if declared is None:
        return
    agreed = PublicRecords.read(declared)
    if is_user_code(named) and not is_shipped("dataset", named):
        raise DataError(
            f"teachers of this agreement label public records of {agreed.dataset}, and dataset of this site is {named!r}, which is its own; votes "
            "between sites are for published data sets, named as such"
        )
    found = PublicRecords.of(dataset, agreed.records)
    if found.dataset != agreed.dataset:
        raise DataError(
            f"the data set of this site is {found.dataset}, and the agreement asks about records of {agreed.dataset}"
        )
    if found.sha256 != agreed.sha256:
        raise DataError(
            f"the public records of {found.dataset} at this site are not those of the agreement: their hash is {found.sha256[:16]}…, and the "
            f"agreement says {agreed.sha256[:16]}…. Load the same files everywhere, or agree anew"
        )


def check_votes(session: Session, declared: Mapping[str, Any] | None) -> None:
    """Refuse a session that asks teachers about other records than those that were agreed on. Call it before an account is opened."""
    ballot, pool = session.cost.ballot, session.training.data.dataset.pool
    if ballot is None:
        return
    if declared is None:
        raise InvalidInput(
            "the rule asks teachers about public records, and the agreement names none; between sites that is for the shipped rule pate, "
            "on a published data set"
        )
    agreed = PublicRecords.read(declared)
    if pool is None or ballot.records != agreed.records or hash_of(pool) != agreed.sha256:
        raise InvalidInput("the records that teachers would be asked about are not the public records of the agreement")


def hash_of(inputs: Inputs) -> str:
    """Return SHA-256 of records in their order: labels go by place."""
    found = sha256()
    for column in parts(inputs):
        found.update(f"{column.dtype} {tuple(column.shape)};".encode())
        found.update(column.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
