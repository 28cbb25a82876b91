"""The power fails at every step between the buffer and RAW: what was not on disk is gone, and no event is."""

import os
from collections import Counter
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from leanops.adapters.files.folder import Folder
from leanops.adapters.iceberg.local import LocalCatalog, sync_filesystem
from leanops.domain.event.envelope import Envelope
from leanops.domain.event.record import raw_record
from leanops.domain.failures import Rule
from leanops.domain.table.definitions import ERRORS
from leanops.ports.state import ERROR_TRACKER, WORKERS
from leanops.runtimes.embedded import Embedded, create_home
from leanops.usecases.dlq.drain import drain
from leanops.usecases.ingest.archive import DeadLetter, archive
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import NOW_MS, Clock
from tests.support.hub import Hub, hub_in
from tests.support.world import Abandoned

TOPICS = ("orders", "payments")
FLUSH = ("before claim", "after claim", "before land", "after land", "before forget", "after forget")
DRAIN = ("before drain", "after drain", "before forget dead letters", "after forget dead letters")


class Disk:
    """The warehouse's file system: what was written since the last sync is lost when the power fails.

    A new file keeps its name and loses its bytes, as file systems do that allocate late. SQLite's own files stay:
    their commits are synced, which a test below looks at.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._durable: dict[Path, bytes] = {}
        self.syncs = 0
        self.sync(warehouse)

    def sync(self, _folder: Path) -> None:
        self.syncs += 1
        self._durable = self._files()

    def cut(self) -> None:
        for path, found in self._files().items():
            kept = self._durable.get(path, b"")
            if kept != found:
                path.write_bytes(kept)

    def _files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self._warehouse.rglob("*") if path.is_file()}


class Powered:
    """A home on such a disk, worked on until the power fails."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock()
        (folder / "warehouse").mkdir()
        self.disk = Disk(folder / "warehouse")

    def open(self, stop_at: tuple[str, int] | None = None) -> AbstractContextManager[Hub]:
        seen: Counter[str] = Counter()

        def step(name: str) -> None:
            seen[name] += 1
            if (name, seen[name]) == stop_at:
                raise Abandoned(name)

        return hub_in(self.folder, clock=self.clock, step=step, sync=self.disk.sync)

    def fail(self) -> None:
        self.disk.cut()
        self.clock.advance(400)


@pytest.fixture
def home(tmp_path: Path) -> Powered:
    home = Powered(tmp_path)
    with home.open() as hub:
        for topic in TOPICS:
            add_topic(hub.platform, topic)
            hub.buffer.put([record(f"{topic}-0", topic)])
        hub.flush()
    return home


def record(message_id: str, topic: str) -> bytes:
    return raw_record(Envelope(topic, message_id, NOW_MS * 1000, payload="{}"), "{}", NOW_MS)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", FLUSH)
def test_every_event_is_in_raw_or_in_the_buffer_wherever_the_power_fails(home: Powered, step: str, nth: int) -> None:
    with home.open((step, nth)) as hub:
        hub.buffer.put([record(f"{topic}-1", topic) for topic in TOPICS])
        with suppress(Abandoned):
            hub.flush()
    home.fail()
    with home.open() as hub:
        while hub.flush():
            pass
        assert hub.buffer.waiting().records == hub.buffer.waiting().claimed == 0
    home.fail()
    with home.open() as hub:
        assert {topic: hub.ids(topic) for topic in TOPICS} == {topic: [f"{topic}-0", f"{topic}-1"] for topic in TOPICS}


@pytest.mark.parametrize("step", DRAIN)
def test_every_dead_letter_is_noted_or_in_dlq_errors_wherever_the_power_fails(home: Powered, step: str) -> None:
    with home.open((step, 1)) as hub:
        dead_letters = [DeadLetter("orders", b"{}", Rule.BAD_ENVELOPE, "it is bad", name) for name in ("m1", "m2")]
        archive(dead_letters, hub.files, hub.platform.state, hub.platform.clock)
        with pytest.raises(Abandoned):
            drain(hub.platform)
    home.fail()
    with home.open() as hub:
        drain(hub.platform)
    home.fail()
    with home.open() as hub:
        rows = hub.platform.catalog.select(hub.platform.rules.databases.dlq_errors, list(ERRORS.columns))
        assert sorted(row["message_id"] for row in rows) == ["m1", "m2"]
        assert list(hub.platform.state.rows(ERROR_TRACKER)) == []


def test_a_flush_waits_for_the_disk_once_a_table(home: Powered) -> None:
    with home.open() as hub:
        hub.buffer.put([record(f"{topic}-{number}", topic) for topic in TOPICS for number in range(50)])
        before = home.disk.syncs
        hub.flush()
    assert home.disk.syncs - before == len(TOPICS)


def test_every_commit_of_a_home_is_synced_by_each_of_its_databases(tmp_path: Path) -> None:
    found: dict[str, sa.Engine] = {}

    def note(connection: sa.Connection) -> None:
        found[Path(str(connection.engine.url.database)).name] = connection.engine

    sa.event.listen(sa.Engine, "engine_connect", note)
    try:
        runtime = Embedded(create_home(tmp_path / "home"))
        assert "synchronous=FULL" in runtime.catalog_properties()["uri"]
        runtime.catalog.list_namespaces()
        list(runtime.state.rows(WORKERS))
        runtime.queue.depths()
        runtime.buffer.waiting()
        assert found.keys() == {"catalog.db", "state.db", "queue.db", "delivery.db"}
        for name, engine in list(found.items()):
            with engine.connect() as connection:
                assert connection.execute(sa.text("PRAGMA synchronous")).scalar_one() == 2, name
        runtime.close()
    finally:
        sa.event.remove(sa.Engine, "engine_connect", note)


def test_the_file_system_of_a_folder_is_synced_or_the_error_says_why(tmp_path: Path) -> None:
    sync_filesystem(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_filesystem(tmp_path / "gone")


def test_a_commit_whose_files_cannot_be_synced_is_not_made(tmp_path: Path) -> None:
    def refuse(_folder: Path) -> None:
        raise OSError(5, "Input/output error")

    with hub_in(tmp_path, sync=refuse) as hub:
        catalog = LocalCatalog("leanops", tmp_path)
        catalog.create_namespace("iceberg_raw_db")
        catalog.engine.dispose()
        with pytest.raises(OSError, match="Input/output"):
            add_topic(hub.platform, "orders")
        assert hub.platform.catalog.load("iceberg_raw_db.orders_staging") is None


def test_a_file_is_on_disk_with_the_names_of_all_its_new_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").resolve())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    Folder(tmp_path / "files").put("dlq/orders/2026-11-15/1.json", b"{}")
    folders = [tmp_path, *(tmp_path / "files" / part for part in ("", "dlq", "dlq/orders", "dlq/orders/2026-11-15"))]
    assert [path for path in folders if path not in synced] == []
