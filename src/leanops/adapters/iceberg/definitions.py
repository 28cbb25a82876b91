"""Table definitions as Iceberg has them: columns, partitions, properties."""

from collections.abc import Iterator
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import IcebergType, ListType, NestedField, StringType, StructType

from leanops.domain.table.definitions import FAILURE, FAILURES, TableDefinition

PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "merge-on-read",
    "write.merge.isolation-level": "serializable",
    "write.merge.distribution-mode": "hash",
    "write.distribution-mode": "none",
    "write.target-file-size-bytes": str(256 << 20),
    "write.parquet.compression-codec": "zstd",
    # A small dictionary gives up early on columns that hardly repeat: quicker to write, and smaller.
    "write.parquet.dict-size-bytes": str(64 << 10),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest.target-size-bytes": str(8 << 20),
    # Without it PyIceberg adds a manifest to the list with every append, and reads them all at the next.
    "commit.manifest-merge.enabled": "true",
    "commit.retry.num-retries": "30",
    "write.metadata.metrics.default": "none",
}


_KEYS = "record_key", "idempotency_key"


def iceberg_schema(definition: TableDefinition) -> Schema:
    """The columns, numbered in order; those inside a list behind it."""
    ids = iter(range(1, 10_000))
    fields = []
    for name, kind in definition.columns.items():
        number = next(ids)
        fields.append(
            NestedField(number, name, iceberg_type(kind, ids), required=False, doc=definition.comments.get(name))
        )
    return Schema(*fields)


def iceberg_type(kind: str, ids: Iterator[int]) -> IcebergType:
    """The type of a column; what is nested takes its numbers from `ids`."""
    if kind == FAILURES:
        element = next(ids)
        members = [NestedField(next(ids), name, StringType(), required=False) for name in FAILURE]
        return ListType(element, StructType(*members), element_required=False)
    return IcebergType.model_validate(kind)


def partition_spec(definition: TableDefinition, schema: Schema) -> PartitionSpec:
    """How the rows are laid out."""
    transforms: dict[str, Any] = {"day": DayTransform, "identity": IdentityTransform}
    return PartitionSpec(
        *(
            PartitionField(
                schema.find_field(column).field_id,
                1000 + position,
                transforms[transform](),
                definition.partition_names[position],
            )
            for position, (column, transform) in enumerate(definition.partition_by)
        )
    )


def table_properties(definition: TableDefinition) -> dict[str, str]:
    """The same for every table, and which columns have metrics."""
    # Keys begin alike, `orders:2026-…`: bounds that end there would prune nothing.
    sizes = {name: 64 if name in _KEYS else 16 for name in definition.measured}
    metrics = {f"write.metadata.metrics.column.{name}": f"truncate({size})" for name, size in sizes.items()}
    known = {key: mode for key, mode in metrics.items() if key.rsplit(".", 1)[1] in definition.columns}
    kept = {"write.metadata.delete-after-commit.enabled": "false"} if definition.is_shadow else {}
    return {**PROPERTIES, **known, **kept}
