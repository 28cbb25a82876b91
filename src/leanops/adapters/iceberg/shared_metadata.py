"""The metadata of a table is never changed in place, so everybody may have the same."""

from typing import Any

from pyiceberg.table.metadata import TableMetadataV1, TableMetadataV2, TableMetadataV3


def install() -> None:
    """Have PyIceberg share it: at every look into a transaction it copies all schemas and snapshots of the table.

    With hundreds of columns that took longer than the rest of a small batch.
    """
    for kind in (TableMetadataV1, TableMetadataV2, TableMetadataV3):
        kind.__deepcopy__ = _itself  # type: ignore[method-assign, assignment]


def _itself(metadata: Any, _memo: Any = None) -> Any:
    return metadata
