"""Reads RAW the way a schema would: the rows a rebuilt Standardized would hold. Nothing is written."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from leanops.domain.limits import Limits
from leanops.domain.payload.evolution import plan_columns, real_paths
from leanops.domain.payload.fast_flatten import learn
from leanops.domain.payload.flatten import Kind, ParseError, flat
from leanops.domain.schema.model import Keys, Schema
from leanops.domain.schema.parse import DEFAULT_KEY_PATH, DEFAULT_PERIOD_PATHS
from leanops.domain.table.history import TableView
from leanops.ports.tables import Lake
from leanops.transforms.flatten import FlattenPlan, observed_kinds
from leanops.transforms.frames.flatten import cells
from leanops.transforms.frames.judge_plan import sampled
from leanops.transforms.frames.standardize import Cells, first_rows, refused
from leanops.transforms.keys import COUNTED
from leanops.usecases.platform import Platform, secret_key

SAMPLE = 500
"""Payloads that show what shape to expect."""


@dataclass(frozen=True)
class RawEvents:
    """Rows of RAW with their keys and cells; `positions` maps paths to columns, all other paths are in `extra`."""

    read: DataFrame
    positions: Mapping[str, str]
    kinds: Mapping[str, set[Kind]]
    counts: Mapping[str, int]
    """rows, parse_errors, missing_keys, and the counts beside the balance of a batch."""

    @property
    def valid(self) -> DataFrame:
        """The rows that are events."""
        return self.read.where("rule IS NULL")

    def free(self) -> None:
        """Give back what is held in memory and on disk."""
        self.read.unpersist()


def raw_rows(raw: TableView) -> int:
    """How many rows RAW has at its head, as its own summary counts them."""
    return int(raw.snapshots[raw.head].summary.get("total-records", 0)) if raw.head is not None else 0


def read_events(platform: Platform, lake: Lake, topic: str, raw: TableView, keys: Keys, share: float) -> RawEvents:
    """Flatten RAW, or about a share of it; the caller frees it."""
    assert raw.head is not None
    lake.fit(int(raw_rows(raw) * share))
    sample, rules = sampled(lake.at(raw.name, raw.head), "message_id", share), platform.rules
    expected = _sampled_kinds(sample, rules.limits, rules.tables.columns)
    plan = flatten_plan(platform, topic, keys, rules.limits, expected)
    read = cells(sample, plan).persist(StorageLevel.MEMORY_AND_DISK)
    is_event = F.col("rule").isNull()
    figures: Any = read.agg(
        F.collect_set("observed").alias("observed"),
        F.count(F.lit(1)).alias("rows"),
        F.count("rule").alias("parse_errors"),
        *(F.count_if(F.col(name) & is_event).alias(name) for name in COUNTED),
        F.count_if(F.col("idempotency_key").isNull() & is_event).alias("missing_keys"),
    ).first()
    counts = {name: int(figures[name]) for name in ("rows", "parse_errors", "missing_keys", *COUNTED)}
    positions = dict(zip(plan.expected, plan.columns, strict=True))
    return RawEvents(read, positions, observed_kinds(figures["observed"]), counts)


def flatten_plan(
    platform: Platform, topic: str, keys: Keys, limits: Limits, expected: Mapping[str, Kind]
) -> FlattenPlan:
    """How the payloads of a topic become cells."""
    return FlattenPlan(
        expected=dict(expected),
        limits=limits,
        key_path=keys.idempotency_key,
        period_paths=keys.period_paths,
        version_path=keys.version,
        version_format=keys.version_format,
        key_secret=secret_key(platform, topic) if keys.pii else None,
    )


def _sampled_kinds(raw: DataFrame, limits: Limits, columns: int) -> dict[str, Kind]:
    """The shape of some payloads; one of another shape gets its cells too, only more slowly."""
    payloads = []
    for row in raw.select("json_payload").limit(SAMPLE).collect():
        with suppress(ParseError):
            payloads.append(flat(row.json_payload or "", limits))
    return dict(list(learn(payloads).items())[:columns])


@dataclass(frozen=True)
class Standardized:
    """What Standardized would hold: one row per key, and the events its contract would refuse."""

    rows: DataFrame
    paths: Mapping[str, str]
    refused: int


def standardized(
    platform: Platform, topic: str, events: RawEvents, schema: Schema, known: Mapping[str, str]
) -> Standardized:
    """The events as a first batch would standardize them; `known` are the columns there are, by path."""
    kinds = real_paths(events.kinds)
    exempt = [path for path in (DEFAULT_KEY_PATH, *DEFAULT_PERIOD_PATHS) if path in kinds or path in known]
    contract, limits = schema.policies.unknown_fields, platform.rules.tables
    plan = plan_columns(known, kinds, [*schema.named_paths, *exempt], contract, limits)
    made = Cells(plan.columns, events.positions, refuses=bool(plan.refused))
    return Standardized(first_rows(events.valid, made, topic), plan.columns, refused(events.valid, made))
