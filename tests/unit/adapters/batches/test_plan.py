"""Places: the files of a table at a snapshot, read by what the columns were called then."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from leanops.adapters.iceberg.batches.plan import Tables
from leanops.adapters.iceberg.catalog import IcebergCatalog
from leanops.adapters.iceberg.options import TaskRules
from leanops.adapters.iceberg.tasks.places import pieces
from leanops.domain.table.definitions import STANDARDIZED
from leanops.ports.engine import TableAt
from tests.unit.adapters.batches.tables import NAME, catalog_in, event

OTHER = "db.other"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as catalog:
        yield catalog


def test_rows_of_a_snapshot_before_a_swap_are_read_by_the_columns_they_had(catalog: Catalog) -> None:
    tables = IcebergCatalog(catalog)
    for name, payload in ((NAME, ("a", "b")), (OTHER, ("b", "a"))):
        definition = replace(STANDARDIZED, columns={**STANDARDIZED.columns, **dict.fromkeys(payload, "string")})
        tables.create(name, definition)
        tables.append(name, [{**event(name), "a": "in a", "b": "in b"}])
    before, source = tables.load(NAME), tables.load(OTHER)
    assert before is not None
    assert source is not None
    assert before.head is not None
    assert source.head is not None
    tables.take_place(NAME, OTHER, source.head, {}, only_at=before.head, after=before.last_sequence_number)
    after = tables.load(NAME)
    assert after is not None
    for head, key in ((before.head, NAME), (after.head, OTHER)):
        place = Tables(catalog, TaskRules()).at(TableAt(NAME, head))
        rows = [row for piece in pieces(place, ["record_key", "a", "b"]) for row in piece.to_pylist()]
        assert [(row["record_key"], row["a"], row["b"]) for row in rows] == [(key, "in a", "in b")]


def test_a_column_that_came_after_the_rows_is_empty_in_them(catalog: Catalog) -> None:
    tables = IcebergCatalog(catalog)
    tables.create(NAME, STANDARDIZED)
    tables.append(NAME, [event("k")])
    view = tables.alter(NAME, {"late": ("string", "$.late")})
    place = Tables(catalog, TaskRules()).at(TableAt(NAME, view.head))
    rows = [row for piece in pieces(place, ["record_key", "late"]) for row in piece.to_pylist()]
    assert [(row["record_key"], row["late"]) for row in rows] == [("k", None)]
