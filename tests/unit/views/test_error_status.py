"""What became of quarantined rows, as the versions in the tables tell it; the stored status is never changed by it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from leanops.domain.failures import error_id
from leanops.domain.table.definitions import CURATED, ERRORS, STANDARDIZED
from leanops.runtimes.embedded import Embedded
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.topics.registry import add_topic
from leanops.views.errors import Wanted, find_error, list_errors
from leanops.views.status import status
from tests.support.builders import NOW, NOW_MS, schema_text, watermark
from tests.unit.conftest import Leanops

STANDARD, CURATE = "iceberg_standardized_db.orders", "iceberg_curated_db.orders"
PARSE, BAD = "iceberg_standardized_db.parse_errors", "iceberg_curated_db.errors"


@dataclass(frozen=True)
class Sent:
    """A message of key `k`: when it arrived, and in which batch it was standardized or found wrong."""

    name: str
    at: int
    batch: int
    published: int | None = None

    def row(self) -> dict[str, Any]:
        published = self.at if self.published is None else self.published
        return {
            "message_id": self.name,
            "topic_name": "orders",
            "publish_time": NOW + timedelta(minutes=published),
            "ingestion_ts": NOW_MS + self.at,
        }


def batch_id(number: int) -> str:
    return f"26111508{number:08d}-x"


def write(runtime: Embedded, name: str, definition: Any, rows: list[dict[str, Any]], batch: int) -> None:
    catalog = runtime.platform.catalog
    catalog.create(name, definition)
    catalog.append(name, rows, watermark(1, batch, batch_id=batch_id(batch)).summary())


def standardized(runtime: Embedded, *messages: Sent, key: str = "k", batch: int = 9) -> None:
    rows = [
        {"record_key": f"key:{key}", "idempotency_key": key, "_batch_id": batch_id(sent.batch), **sent.row()}
        for sent in messages
    ]
    write(runtime, STANDARD, STANDARDIZED, rows, batch)


def curated(runtime: Embedded, *messages: Sent, key: str = "k") -> None:
    write(runtime, CURATE, CURATED, [{"idempotency_key": key, **sent.row()} for sent in messages], 9)


def failed(
    runtime: Embedded, *messages: Sent, layer: str = "curated", key: str | None = "k", stored: str = "OPEN"
) -> str:
    """Error rows of these messages; the id of the first."""
    failure = {"rule": "rule_min", "column": "c", "path": "$.c", "message": "is less than 0", "value": "-1"}
    rows = [
        {
            **sent.row(),
            "error_id": error_id(layer, "orders", sent.name),
            "layer": layer,
            "record_key": f"key:{key}" if key else None,
            "failures": [failure],
            "source": f"iceberg_raw_db.orders_staging/publish_time_day={NOW:%Y-%m-%d}",
            "batch_id": batch_id(sent.batch),
            "detected_ts": NOW + timedelta(minutes=sent.at),
            "status": stored,
        }
        for sent in messages
    ]
    name = BAD if layer == "curated" else PARSE
    runtime.platform.catalog.create(name, ERRORS)
    runtime.platform.catalog.append(name, rows)
    return str(rows[0]["error_id"])


def now(runtime: Embedded, identity: str) -> str:
    """The status a person sees; the stored one stays what it was."""
    row = find_error(runtime.sources(), identity)
    assert row["stored_status"] in ("OPEN", "REPLAYED", "DISCARDED")
    (listed,) = [one for one in list_errors(runtime.sources(), Wanted(), 9).rows if one["error_id"] == identity]
    assert listed["status"] == row["status"]
    return str(row["status"])


# Of key k: `before` passed, `wrong` failed, `after` and `later` came then.
BEFORE, WRONG = Sent("before", 1, 1), Sent("wrong", 2, 4)
BACKDATED = Sent("before", 1, 1, published=7)
AFTER, LATER = Sent("after", 3, 5), Sent("later", 4, 6)


@pytest.mark.parametrize(
    ("current", "good", "expected"),
    [
        pytest.param(WRONG, None, "OPEN", id="it is the newest and Curated lacks the key"),
        pytest.param(WRONG, BEFORE, "OPEN", id="it is the newest and its key is behind"),
        pytest.param(WRONG, WRONG, "RESOLVED", id="it passes today"),
        pytest.param(AFTER, WRONG, "RESOLVED", id="it passed and Curated has not read what came after"),
        pytest.param(AFTER, AFTER, "RESOLVED", id="a newer version passed"),
        pytest.param(LATER, AFTER, "RESOLVED", id="a newer version passed and a still newer one failed"),
        pytest.param(LATER, BEFORE, "SUPERSEDED", id="a newer version failed too and the key is behind"),
        pytest.param(AFTER, None, "SUPERSEDED", id="a newer version failed too and Curated lacks the key"),
        pytest.param(BEFORE, BEFORE, "OPEN", id="a rollback went back before it"),
        pytest.param(BACKDATED, BACKDATED, "OPEN", id="a rollback brought back an older version published later"),
    ],
)
def test_an_error_of_curated_is_what_the_versions_of_its_key_say(
    runtime: Embedded, current: Sent, good: Sent | None, expected: str
) -> None:
    standardized(runtime, current)
    curated(runtime, *([good] if good else []))
    assert now(runtime, failed(runtime, WRONG)) == expected


@pytest.mark.parametrize(
    "current",
    [
        pytest.param(Sent("a", 1, 5), id="standardized later"),
        pytest.param(Sent("a", 3, 1, published=1), id="arrived later"),
        pytest.param(Sent("a", 2, 1, published=3), id="arrived with it and published later"),
        pytest.param(Sent("wrong#r1", 2, 4), id="its replay"),
    ],
)
def test_anything_that_shows_another_version_to_be_later_makes_it_newer(runtime: Embedded, current: Sent) -> None:
    standardized(runtime, current)
    assert now(runtime, failed(runtime, WRONG)) == "SUPERSEDED"


def test_a_message_whose_key_changed_is_found_by_its_own_id(runtime: Embedded) -> None:
    standardized(runtime, WRONG, key="other")
    identity = failed(runtime, WRONG)
    assert now(runtime, identity) == "OPEN"
    curated(runtime, WRONG, key="other")
    assert now(runtime, identity) == "RESOLVED"


@pytest.mark.parametrize(("batch", "expected"), [(9, "SUPERSEDED"), (3, "OPEN")])
def test_a_message_that_is_nowhere_is_superseded_unless_it_is_still_to_be_read_again(
    runtime: Embedded, batch: int, expected: str
) -> None:
    standardized(runtime, BEFORE, key="other", batch=batch)
    assert now(runtime, failed(runtime, WRONG)) == expected


@pytest.mark.parametrize(
    ("current", "key", "expected"),
    [
        pytest.param(BEFORE, "k", "OPEN", id="refused, and an older version stands"),
        pytest.param(WRONG, "k", "RESOLVED", id="a rebuild under another contract took it"),
        pytest.param(AFTER, "k", "SUPERSEDED", id="a newer version came through"),
        pytest.param(Sent("late", 3, 5, published=1), "k", "OPEN", id="an older version came late"),
        pytest.param(AFTER, None, "OPEN", id="no JSON and so no key"),
        pytest.param(WRONG, None, "RESOLVED", id="no key then, and taken today"),
    ],
)
def test_a_parse_error_is_what_standardized_says(
    runtime: Embedded, current: Sent, key: str | None, expected: str
) -> None:
    standardized(runtime, current)
    assert now(runtime, failed(runtime, WRONG, layer="standardized", key=key)) == expected


@pytest.mark.parametrize(("stored", "expected"), [("REPLAYED", "RESOLVED"), ("DISCARDED", "DISCARDED")])
def test_only_what_waits_is_looked_at_again(runtime: Embedded, stored: str, expected: str) -> None:
    standardized(runtime, WRONG)
    curated(runtime, WRONG)
    assert now(runtime, failed(runtime, WRONG, stored=stored)) == expected


def test_a_topic_without_tables_leaves_its_errors_open(runtime: Embedded) -> None:
    assert now(runtime, failed(runtime, WRONG)) == "OPEN"


def test_another_topic_with_the_same_keys_settles_nothing(runtime: Embedded) -> None:
    add_topic(runtime.platform, "invoices")
    deploy_schema(runtime.platform, "invoices", schema_text(table_name="invoices"), "schema.json")
    write(runtime, "iceberg_curated_db.invoices", CURATED, [{"idempotency_key": "k", **WRONG.row()}], 9)
    write(runtime, "iceberg_standardized_db.invoices", STANDARDIZED, [{"record_key": "key:k", **WRONG.row()}], 9)
    standardized(runtime, WRONG)
    assert now(runtime, failed(runtime, WRONG)) == "OPEN"


@pytest.fixture
def several(runtime: Embedded) -> Embedded:
    """One error of each kind; what is open is the oldest."""
    standardized(runtime, Sent("open", 1, 1), key="a")
    standardized(runtime, Sent("good", 9, 9), key="b")
    standardized(runtime, Sent("bad", 9, 9), key="c")
    curated(runtime, Sent("good", 9, 9), key="b")
    failed(runtime, Sent("open", 1, 2), key="a")
    failed(runtime, Sent("put away", 2, 2), key="a", stored="DISCARDED")
    failed(runtime, Sent("beaten", 3, 2), key="c")
    failed(runtime, *(Sent(f"passed{number:02d}", 4, 2) for number in range(30)), key="b")
    return runtime


def test_status_counts_what_somebody_has_to_look_at(several: Embedded) -> None:
    (found,) = status(several.sources())
    assert found.open_errors == {"parse_errors": 0, "errors": 1}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), {"OPEN": 1}),
        (("open",), {"OPEN": 1}),
        (("replayed",), {}),
        (("resolved",), {"RESOLVED": 30}),
        (("superseded",), {"SUPERSEDED": 1}),
        (("discarded",), {"DISCARDED": 1}),
        (("all",), {"OPEN": 1, "RESOLVED": 30, "SUPERSEDED": 1, "DISCARDED": 1}),
    ],
)
def test_errors_are_listed_by_the_status_that_holds_now(
    leanops: Leanops, several: Embedded, words: tuple[str, ...], expected: dict[str, int]
) -> None:
    chosen = [word for status in words for word in ("--status", status)]
    rows = leanops("errors", "list", "--json", "--limit", "50", *chosen).json
    found = [row["status"] for row in rows]
    assert {one: found.count(one) for one in found} == expected
    assert {row["stored_status"] for row in rows} <= {"OPEN", "DISCARDED"}


@pytest.mark.parametrize("limit", ["1", "2", "50"])
def test_what_is_left_out_is_counted_and_never_hides_what_is_open(
    leanops: Leanops, several: Embedded, limit: str
) -> None:
    lines = leanops("errors", "list", "--limit", limit).out.splitlines()
    assert [line.split()[5] for line in lines[2:-1]] == ["OPEN"]
    said = "the newest 1; more with --limit" if limit == "1" else "1 error"
    assert lines[-1] == f"{said}; 31 resolved or superseded, shown with --status all"


def test_an_error_that_is_resolved_is_shown_with_what_is_stored(leanops: Leanops, several: Embedded) -> None:
    identity = error_id("curated", "orders", "passed00")
    lines = [line.split() for line in leanops("errors", "show", identity).out.splitlines()]
    assert ["status", "RESOLVED"] in lines
    assert ["stored_status", "OPEN"] in lines
    still_open = leanops("errors", "show", error_id("curated", "orders", "open")).out
    assert "stored_status" not in still_open
