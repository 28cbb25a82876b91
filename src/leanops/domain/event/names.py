"""Topics: which names are allowed, and which tables they give."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

from leanops.domain.errors import InvalidTopicError
from leanops.domain.table.definitions import RESERVED_TABLES

LONGEST_TABLE_NAME = 120
LONGEST_QUEUE_NAME = 60
_TOPIC = re.compile(r"[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
_ODD = re.compile(r"[^a-z0-9_]")


def check_topic(topic: str) -> str:
    """The topic itself if it is a Pub/Sub id; raises InvalidTopicError otherwise."""
    if not _TOPIC.fullmatch(topic) or topic.lower().startswith("goog"):
        raise InvalidTopicError(
            f"{topic!r} is not a topic id: 3 to 255 characters, a letter first, then letters, digits and . _ ~ + % -"
        )
    return topic


def table_stem(topic: str) -> str:
    """The name a topic gives its tables: lower case, `[a-z0-9_]`, cut and hashed where too long."""
    return _shortened(topic, LONGEST_TABLE_NAME)


@lru_cache(maxsize=4_096)
def queue_name(topic: str) -> str:
    """The name a topic gives its queue, short enough for SQS with a prefix and the suffix of dead letters."""
    return _shortened(topic, LONGEST_QUEUE_NAME)


def _shortened(topic: str, longest: int) -> str:
    name = _ODD.sub("_", topic.lower())
    return name if len(name) <= longest else f"{name[: longest - 9]}_{sha256(topic.encode()).hexdigest()[:8]}"


def check_new_topic(topic: str, others: Iterable[str]) -> str:
    """The topic itself if it can be added beside the others; raises InvalidTopicError otherwise."""
    stem = table_stem(check_topic(topic))
    if stem in RESERVED_TABLES:
        raise InvalidTopicError(f"topic {topic!r} would take the reserved table {stem!r}; choose another name")
    for other in others:
        if other != topic and table_stem(other) == stem:
            raise InvalidTopicError(
                f"topics {other!r} and {topic!r} would share the table {stem!r}; choose another name"
            )
    return topic


@dataclass(frozen=True)
class Databases:
    """The names of the databases."""

    raw: Annotated[str, "Database of the RAW tables and dlq_errors."] = "iceberg_raw_db"
    standardized: Annotated[str, "Database of the Standardized tables."] = "iceberg_standardized_db"
    curated: Annotated[str, "Database of the Curated tables."] = "iceberg_curated_db"
    ops: Annotated[str, "Database of the operational tables."] = "ops_db"
    shadow: Annotated[str, "Database of tables that are being built and not live yet."] = "iceberg_shadow_db"

    def raw_table(self, topic: str) -> str:
        return f"{self.raw}.{table_stem(topic)}_staging"

    def standardized_table(self, topic: str) -> str:
        return f"{self.standardized}.{table_stem(topic)}"

    def curated_table(self, table_name: str) -> str:
        return f"{self.curated}.{table_name}"

    def shadow_table(self, operation_id: str, attempt: int | None, what: str) -> str:
        which = operation_id if attempt is None else f"{operation_id}_{attempt}"
        return f"{self.shadow}.{_ODD.sub('_', f'op{which}_{what}')}"

    @property
    def dlq_errors(self) -> str:
        return f"{self.raw}.dlq_errors"

    @property
    def parse_errors(self) -> str:
        return f"{self.standardized}.parse_errors"

    @property
    def errors(self) -> str:
        return f"{self.curated}.errors"

    def ops_table(self, name: str) -> str:
        return f"{self.ops}.{name}"
