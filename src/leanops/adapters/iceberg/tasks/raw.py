"""RAW becomes cells: how the payloads of a batch are flattened, piece by piece."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain

import pyarrow as pa

from leanops.adapters.iceberg.tasks.held import together
from leanops.adapters.iceberg.tasks.places import Place, pieces
from leanops.adapters.iceberg.tasks.rows import ROWS_OF_PAYLOADS
from leanops.domain.limits import Limits
from leanops.domain.payload.fast_flatten import Layout, learn
from leanops.domain.payload.flatten import Kind, ParseError, flat
from leanops.ports.engine import CurateWork, StandardizeWork, union
from leanops.transforms.flatten import RAW_COLUMNS, FlattenPlan, ReportedPaths, flattened, observed_kinds
from leanops.transforms.older import PLACE

SAMPLE = 500
"""Payloads that show what shape to expect where no batch came before."""
PARTS_OF_MEMORY = 4
"""A piece of rows is such a part of what a task may hold: some are copied on the way."""
_NO_PATHS = ReportedPaths(frozenset(), 0)
"""The driver needs none of the paths."""


def raw_pieces(place: Place, memory: int) -> Iterator[pa.Table]:
    """The rows of RAW files, and where each of them is; no piece is empty."""
    all_pieces = together(pieces(place, RAW_COLUMNS, ROWS_OF_PAYLOADS), memory // PARTS_OF_MEMORY)
    return (piece for piece in all_pieces if len(piece))


def flattened_pieces(
    work: StandardizeWork | CurateWork, secret: bytes | None, raw: Iterator[pa.Table]
) -> tuple[FlattenPlan, Iterator[pa.Table]] | None:
    """How RAW rows are flattened, and their cells; None where there are no rows."""
    first = next(raw, None)
    if first is None:
        return None
    plan = flatten_plan(work, secret, work.expected or sampled_of(work, first))
    return plan, (cells_of(piece, plan) for piece in chain([first], raw))


def flatten_plan(work: StandardizeWork | CurateWork, secret: bytes | None, expected: Mapping[str, Kind]) -> FlattenPlan:
    """How the payloads of a batch become cells."""
    keys = work.keys
    return FlattenPlan(
        expected=dict(expected),
        limits=work.batch.limits,
        key_path=keys.idempotency_key,
        period_paths=keys.period_paths,
        version_path=keys.version,
        version_format=keys.version_format,
        key_secret=secret if keys.pii else None,
        reported=_reported_paths(work) if isinstance(work, StandardizeWork) else _NO_PATHS,
    )


def _reported_paths(work: StandardizeWork) -> ReportedPaths:
    return ReportedPaths(work.known, work.batch.column_limits.columns)


def sampled_of(work: StandardizeWork | CurateWork, raw: pa.Table) -> dict[str, Kind]:
    """The shape of some payloads of a batch."""
    return sampled_kinds(raw, work.batch.limits, work.batch.column_limits.columns)


def sampled_kinds(raw: pa.Table, limits: Limits, columns: int) -> dict[str, Kind]:
    """The shape of some payloads; one of another shape gets its cells too, only more slowly."""
    payloads = []
    for payload in raw.column("json_payload").slice(0, SAMPLE).to_pylist():
        with suppress(ParseError):
            payloads.append(flat(payload or "", limits))
    return dict(list(learn(payloads).items())[:columns])


def cells_of(raw: pa.Table, plan: FlattenPlan) -> pa.Table:
    """The cells of RAW rows, and where each of them is; there must be rows."""
    shape = Layout(plan.expected, plan.limits)
    # Rows that were read a few at a time would stay so in all that is made of them. They fit into one batch of Arrow,
    # whose columns have two gigabytes at most, because a piece is a part of what a task may hold.
    raw = raw.combine_chunks()
    cells = flattened(raw.to_batches()[0], shape, plan)
    for name in PLACE:
        cells = cells.append_column(name, raw.column(name))
    return cells


def with_kinds(work: StandardizeWork, kinds: Mapping[str, set[Kind]], cells: pa.Table) -> dict[str, set[Kind]]:
    """The paths known so far and those of more flattened events, with their kinds; no more than can matter."""
    observed = observed_kinds(cells.column("observed").drop_null().to_pylist())
    return _reported_paths(work).bounded(union((kinds, observed)))
