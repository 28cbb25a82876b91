"""Settings: one typed table, read from leanops.toml and LEANOPS_* variables; it also makes the reference page."""

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from leanops.domain.breaker import BreakerRules
from leanops.domain.errors import UsageError

FILE = "leanops.toml"
# Read before there are settings: where they are, and what must not stand in a file.
OUTSIDE = {"LEANOPS_HOME", "LEANOPS_CACHE", "LEANOPS_PII_KEY"}


class Settings(BaseSettings):
    """Every setting with its default; a variable wins over the file."""

    model_config = SettingsConfigDict(env_prefix="LEANOPS_", extra="forbid", frozen=True)

    raw_database: str = Field("iceberg_raw_db", description="Database of the RAW tables and dlq_errors.")
    standardized_database: str = Field("iceberg_standardized_db", description="Database of the Standardized tables.")
    curated_database: str = Field("iceberg_curated_db", description="Database of the Curated tables.")
    shadow_database: str = Field("iceberg_shadow_db", description="Database of tables that are built, not live yet.")
    ops_database: str = Field("ops_db", description="Database of the operational tables.")
    spark_master: str = Field(
        "local[*]", pattern=r"^local\[", description="Cores for Spark: `local[2]` is two, `local[*]` all."
    )
    driver_memory: str = Field("4g", description="Heap of the Spark driver.")
    java_options: str = Field(
        "-XX:+UseParallelGC",
        description="Options of Spark's Java, in place of these; `-XX:TieredStopAtLevel=1` makes small runs faster.",
    )
    workers: int = Field(4, ge=1, description="Topics worked on at the same time in one application.")
    rebuild_rows: int = Field(2_000_000, ge=1, description="Rows a rebuild works on at a time; progress is kept.")
    explore: bool = Field(False, description="Standardize topics that have no schema yet.")
    payload_bytes: int = Field(1_000_000, ge=1, description="A larger payload is a parse error.")
    payload_depth: int = Field(64, ge=1, le=500, description="A payload nested more deeply is a parse error.")
    payload_keys: int = Field(5_000, ge=1, description="A payload with more keys (outside arrays) is a parse error.")
    duplicate_keys: str = Field(
        "last_wins", pattern="^(last_wins|error)$", description="A key twice in one object: `last_wins` or `error`."
    )
    table_columns: int = Field(1_000, ge=1, description="Beyond this many payload columns, values are rescued.")
    new_columns: int = Field(200, ge=0, description="Beyond this many new columns in a batch, values are rescued.")
    warning_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="Share of a batch whose versions, periods or publish times cannot be used before it is told.",
    )
    removed_after_batches: int = Field(10, ge=1, description="A path unseen for this many batches is drift REMOVED.")
    tries: int = Field(5, ge=1, description="A layer that failed this often is parked until it is retried.")
    backoff_s: int = Field(60, ge=0, description="Seconds before a failed layer is tried again; doubles each time.")
    lease_s: int = Field(
        300,
        ge=3,
        description="Seconds after which the lease of a worker that is cut off ends; of a killed one here at once.",
    )
    operation_wait_s: int = Field(
        120, ge=0, description="Seconds a deploy, rebuild or rollback waits for a cycle to let go of its topic."
    )
    cycle_s: int = Field(900, ge=1, description="Seconds between the starts of two cycles of `leanops serve`.")
    delivery_mb: int = Field(64, ge=1, le=128, description="Megabytes in the delivery buffer that start a flush.")
    delivery_s: int = Field(300, ge=1, le=900, description="Seconds in the delivery buffer that start a flush.")
    min_free_mb: int = Field(
        1_000, ge=0, description="Megabytes free on the home's disk below which no more events are taken in; 0 is off."
    )
    events_per_message: int = Field(1, ge=1, le=1_000, description="Events that may share one queue message.")
    idempotency_hours: int = Field(
        0, ge=0, description="Hours a message_id is remembered to drop repeats before RAW; 0 leaves it to Standardized."
    )
    breaker_error_rate: float = Field(
        0.5, gt=0, le=1, description="Rate of failing events that stops a topic; 0.05 is strict."
    )
    breaker_min_events: int = Field(20, ge=1, description="Events a window needs before the rate counts.")
    breaker_window_s: int = Field(60, ge=1, description="Seconds over which the rate of failures is taken.")
    breaker_pause_s: int = Field(60, ge=1, description="Seconds a topic stays stopped before a probe.")
    bridge_subscription: str = Field(
        "{topic}",
        pattern=r"^[A-Za-z0-9._~+%-]*\{topic\}[A-Za-z0-9._~+%-]*$",
        description="Id of a topic's subscription.",
    )
    bridge_mb: int = Field(64, ge=1, description="Megabytes a bridge has in hand before it stops reading.")
    bridge_messages: int = Field(20_000, ge=1, description="Messages a bridge has in hand before it stops reading.")
    bridge_lease_s: int = Field(60, ge=10, le=600, description="Seconds a message is the bridge's; extended in time.")
    bridge_hold_s: int = Field(600, ge=1, description="Seconds a message waits for the queue before it is given back.")
    bridge_drain_s: int = Field(25, ge=0, description="Seconds a bridge that stops has to send what is in hand.")
    aws_table_prefix: str = Field("", description="Before the name of every DynamoDB table.")
    aws_queue_prefix: str = Field(
        "leanops-", max_length=16, pattern=r"^[A-Za-z0-9_-]*$", description="Before the name of every SQS queue."
    )
    aws_bucket: str = Field(
        "", description="S3 bucket of claim checks and dead letters; its variable makes `leanops bridge` lead to AWS."
    )
    aws_stream: str = Field("", description="Firehose stream that lands events in RAW.")
    aws_processor: str = Field("", description="Lambda function whose event source mappings a breaker switches.")
    aws_schema_job: str = Field("", description="Glue job that plans schema files of S3 on rows and activates them.")
    pii_key_id: str = Field("local-1", description="Name of the key in use, recorded with what it sealed.")

    def breaker_rules(self) -> BreakerRules:
        """When a circuit breaker opens, and how long it waits."""
        return BreakerRules(
            error_rate=self.breaker_error_rate,
            min_events=self.breaker_min_events,
            window_ms=self.breaker_window_s * 1000,
            pause_ms=self.breaker_pause_s * 1000,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables first, then the file; nothing else is read."""
        return env_settings, init_settings


def load_settings(home: Path | None) -> Settings:
    """The settings of a home; unknown keys and bad values are one-line errors that say what to do."""
    values = _file_values(home / FILE) if home and (home / FILE).exists() else {}
    known = Settings.model_fields
    for name, place in [*((key, FILE) for key in values), *_variables()]:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"unknown setting {name!r} in {place}{hint}")
    try:
        return Settings(**values)
    except ValidationError as invalid:
        problem = invalid.errors()[0]
        raise UsageError(f"setting {'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}") from None


def _file_values(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as broken:
        raise UsageError(f"{path.name} is no TOML: {broken}") from None


def _variables() -> list[tuple[str, str]]:
    prefix = "LEANOPS_"
    names = [name for name in os.environ if name.startswith(prefix) and name not in OUTSIDE]
    return [(name.removeprefix(prefix).lower(), "the environment") for name in names]
