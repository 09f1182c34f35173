"""Records that hold NaN or infinity: how many a data set accepts, and the schema that allows them."""

import logging

from torch import Tensor

from tacit.data.fields import Field
from tacit.data.inputs import mapped
from tacit.data.records import Records
from tacit.data.schema import Schema, find_missing
from tacit.errors import DataError

log = logging.getLogger(__name__)


def share_of_missing(allow_missing: bool | float) -> float:
    """Return the largest share of records that may be missing, 0 where none may."""
    if isinstance(allow_missing, bool | int | float) and 0 <= allow_missing <= 1:
        return float(allow_missing)
    raise DataError(
        f"allow_missing is {allow_missing!r}; it must be True, False or a share of records from 0 to 1, such as 0.05"
    )


def warn_of_missing(name: str, records: Records) -> None:
    """Say at once that a run will refuse these records. How many there are is private, and logs are kept and forwarded."""
    if bool(find_missing(records).any()):
        log.warning(
            "training records of %s hold NaN or infinity, and no run will start with them. Drop or correct them (schema.fits(records) "
            "returns which fit), or give allow_missing=0.05 to let in a share of them. This message is about private records: do not "
            "forward it",
            name,
        )


def with_missing(name: str, records: Records, schema: Schema | None) -> Schema:
    """Return a schema that allows NaN and infinity: the given one, if it does."""
    if schema is not None:
        if schema.is_finite:
            raise DataError(
                "a schema declares what may be missing: set finite=False in its fields, or leave out allow_missing"
            )
        return schema

    def field(table: Tensor) -> Field:
        finite = not (table.is_floating_point() or table.is_complex())
        return Field(shape=tuple(table.shape[1:]), dtype=table.dtype, finite=finite)

    made = Schema(inputs=mapped(field, records.inputs), targets=field(records.targets))
    if made.is_finite:
        raise DataError(f"allow_missing has no effect on {name}: its tables are of whole numbers, which are never NaN")
    return made
