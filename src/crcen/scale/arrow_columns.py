"""Columns of Arrow tables: what they hold, which of them no person wrote, and their values as NumPy arrays."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.tables.identifiers import is_nameless_index

__all__ = ["index_columns", "kind_of", "labels_of", "numbers_of"]


def index_columns(schema: Any) -> list[str]:
    """Columns that were the index of a pandas data frame: they number the rows, in the order they had.

    pandas writes an index that is more than a range as a column, and says so in the schema's metadata.
    """
    try:
        about = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        listed = about.get("index_columns", [])
    except (ValueError, AttributeError):  # metadata of somebody else
        listed = []
    named = {name for name in listed if isinstance(name, str)}
    return [name for name in schema.names if name in named or is_nameless_index(name)]


def kind_of(arrow_type: Any) -> str:
    """``"number"`` (truth values too), ``"text"`` (categories of it too), ``"date"``, or Arrow's own name."""
    import pyarrow.types as types

    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return "number"
    if types.is_decimal(arrow_type):
        return "number"
    value = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    if types.is_date(value) or types.is_timestamp(value):
        return "date"
    return "text" if types.is_string(value) or types.is_large_string(value) else str(value)


def numbers_of(column: Any) -> NDArray[Any]:
    """Numbers and truth values; NaN where one is missing."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column.cast(pa.int8())
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def labels_of(column: Any, target: str, name: str) -> NDArray[Any]:
    """Labels as they stand; a missing one is refused."""
    import pyarrow as pa

    if column.null_count:
        raise InvalidInput(
            f"column {target!r} of {name} has {column.null_count} missing labels; drop those rows first."
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))
