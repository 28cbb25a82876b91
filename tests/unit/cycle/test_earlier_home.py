"""A home that an earlier version made is brought up to date by its next cycle alone.

`earlier_home.tar.xz` was made by commit a2784a4, whose batches were Spark SQL and MERGE: a topic with batches of
corrections, and one with a batch that was killed after its error rows, each with events in RAW that no batch has read.
Its Avro files and position deletes were rewritten without compression, so that the path in them can be replaced by one
that is as long.
"""

import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from leanops.domain.event.names import Databases
from leanops.ports.state import BATCHES
from leanops.runtimes.embedded import Embedded
from leanops.usecases.platform import Platform, Rules
from leanops.views.balance import whole_topic
from leanops.views.status import status
from tests.oracle.model import Model
from tests.oracle.rows import RawRow
from tests.oracle.streams import SCHEMA, Limits, make_stream
from tests.support.verify import assert_curated, assert_standardized, sources_of
from tests.support.world import World

HOME = Path(__file__).with_name("earlier_home.tar.xz")
PLACE = "/home-of-an-earlier-version/".ljust(220, "h")
"""Where it was made."""
TOPICS = ("orders", "bills")


class Earlier(World):
    """The home as the version of today sees it."""

    def __init__(self, home: Path) -> None:
        super().__init__(Embedded(home), home, in_process=True)
        self.databases = Databases()
        self.rules = Rules(self.databases, pipeline=replace(self.rules.pipeline, backoff_s=0))
        self.now = datetime(2027, 1, 1, tzinfo=UTC)

    def platform(self, *args: Any, **options: Any) -> Platform:
        return replace(super().platform(*args, **options), secret=self.embedded.platform.secret)

    def model(self, topic: str) -> Model:
        """What RAW and the schema say."""
        secret = self.embedded.platform.secret
        assert secret is not None
        model = Model(topic, {**SCHEMA, "table_name": topic}, pii_key=secret.key)
        rows = self.rows(self.databases.raw_table(topic))
        model.standardize([RawRow(**row) for row in sorted(rows, key=lambda row: row["ingestion_ts"])])
        model.curate()
        return model


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Earlier]:
    home = tmp_path / "h".ljust(len(PLACE) - len(str(tmp_path)) - 1, "h")
    with tarfile.open(HOME) as archive:
        archive.extractall(home, filter="data")
    for path in filter(Path.is_file, home.rglob("*")):
        path.write_bytes(path.read_bytes().replace(PLACE.encode(), str(home).encode()))
    world = Earlier(home)
    yield world
    world.close()
    world.embedded.close()


def more(topic: str) -> list[RawRow]:
    """Events of today, most of them corrections."""
    rows = make_stream(Random(topic), 60, Limits(payload_bytes=2_000, depth=8, keys=20))
    latest = 1_900_000_000_000
    return [
        replace(row, message_id=f"today-{row.message_id}", ingestion_ts=latest + at)
        for at, row in enumerate(rows)
        if len(row.json_payload) < 5_000
    ]


def test_its_tables_can_be_read_before_anything_is_done(earlier: Earlier) -> None:
    found = {one.topic: one for one in status(sources_of(earlier))}
    assert found.keys() == set(TOPICS)
    assert found["orders"].balance.balanced, found["orders"].balance.complaints()
    assert (found["orders"].lag_rows, found["bills"].standardized_rows) == (40, 1)
    assert found["orders"].standardized_rows == len(earlier.standardized("orders")) > 20
    # The batch that was killed is on record, and nothing of it is in a table but its error rows.
    assert [stored.row["pipeline_id"] for stored in earlier.platform().state.rows(BATCHES)] == ["bills/standardized"]


def test_its_next_cycle_finishes_what_was_begun_and_reads_on(earlier: Earlier) -> None:
    assert {topic: result.outcome for topic, result in earlier.cycle().items()} == dict.fromkeys(TOPICS, "done")
    check(earlier)
    for topic in TOPICS:
        earlier.publish(topic, more(topic))
    earlier.settle()
    check(earlier)
    assert list(earlier.platform().state.rows(BATCHES)) == []


def check(earlier: Earlier) -> None:
    for topic in TOPICS:
        model = earlier.model(topic)
        assert_standardized(earlier, topic, model)
        assert_curated(earlier, topic, model)
        balance = whole_topic(sources_of(earlier), topic)
        assert balance.balanced, balance.complaints()
        errors = [row["error_id"] for row in earlier.errors(earlier.databases.parse_errors, topic)]
        assert Counter(errors).most_common(1)[0][1] == 1
        assert len(errors) == len(model.parse_errors)
