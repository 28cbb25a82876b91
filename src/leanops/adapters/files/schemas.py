"""Schema files on any file store."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache

from leanops.domain.errors import CommitRefusedError, InvalidSchemaError, InvalidTopicError, UsageError
from leanops.domain.event.names import check_topic
from leanops.domain.problems import Code, Problem
from leanops.domain.schema.model import Schema, schema_from_json
from leanops.ports.files import Files
from leanops.ports.schemas import Pending, pending_at

DRAFT = "schema.draft.json"
REPORT = "error.json"
"""The report of the file that was refused last."""
REPORTS = "reports"
"""Where each refused file has a report of its own, under its own name."""
READERS = 16
_ACTIVE = re.compile(r"([^/]+)/active/schema\.json")
_ARCHIVED = re.compile(r"[^/]+/archive/schema\.v([1-9][0-9]*)\.json")


class SchemaFiles:
    """The Schemas port on a Files port: `{topic}/active/schema.json`, `{topic}/archive/schema.v3.json` and so on."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def active(self, topic: str) -> Schema | None:
        """The active schema, or None."""
        return self._read(_active(topic))

    def version(self, topic: str, version: int) -> Schema | None:
        """The schema of this version, or None."""
        return self._active_at(topic, version) or self._read(_archived(topic, version))

    def text(self, topic: str, version: int) -> str | None:
        """The file of a version, or None."""
        is_active = self._active_at(topic, version) is not None
        return self._text(_active(topic) if is_active else _archived(topic, version))

    def versions(self, topic: str) -> list[int]:
        """Every version that can be read, in order; one that was put into active/ by hand counts."""
        names = map(_ARCHIVED.fullmatch, self._files.names(f"{check_topic(topic)}/archive/"))
        active = self.active(topic)
        return sorted({int(name[1]) for name in names if name} | ({active.version} if active else set()))

    def keep(self, topic: str, version: int, text: str) -> None:
        """Put a version into the archive, once and for all."""
        name, data = _archived(topic, version), text.encode()
        if not self._files.replace(name, None, data) and self._files.get(name) != data:
            raise CommitRefusedError(f"{topic}: another schema was kept as version {version}")

    def activate(self, topic: str, version: int) -> None:
        """Make a version of the archive the active one, in one write; twice is once. The archive keeps the other."""
        data = self._files.get(_archived(topic, version))
        if data is None:
            raise UsageError(f"topic {topic!r} has no schema version {version}; see: leanops schema history {topic}")
        before = self._files.get(_active(topic))
        if before is not None:
            self._keep_active(topic, before, version)
        if before != data and not self._files.replace(_active(topic), before, data):
            raise CommitRefusedError(f"{topic}: another schema became active meanwhile; version {version} did not")

    def topics(self) -> dict[str, str]:
        """Topic → table_name of every active schema; a file that cannot be read hides none of the others."""
        topics = [name[1] for name in map(_ACTIVE.fullmatch, self._files.names("")) if name]
        with ThreadPoolExecutor(READERS) as readers:
            tables = zip(topics, readers.map(self._table, topics), strict=True)
        return {topic: table for topic, table in tables if table}

    def make_place(self, topic: str) -> None:
        """Create `pending/`, so that people find where to put a file."""
        self._files.make_folder(f"{check_topic(topic)}/pending")

    def pending(self) -> list[Pending]:
        """The files that wait to become active; drafts do not."""
        return [pending for pending in map(pending_at, self._files.names("")) if pending]

    def read_pending(self, topic: str, name: str) -> bytes | None:
        """A file that waits, or None."""
        return self._files.get(_pending(topic, name))

    def withdraw(self, topic: str, name: str, data: bytes) -> None:
        """Remove a file that waits, unless it is no longer the one that was read."""
        self._files.delete_same(_pending(topic, name), data)

    def fail(self, topic: str, name: str, data: bytes, report: str) -> None:
        """Put a file that waits beside its report; a crash on the way is repeated to the same end."""
        for place in (f"{REPORTS}/{name}", REPORT):
            self._files.put(f"{topic}/failed/{place}", report.encode())
        self._files.put(f"{topic}/failed/{name if name != REPORT else 'error.schema.json'}", data)
        self.withdraw(topic, name, data)

    def failed(self, topic: str) -> str | None:
        """The report of the last file that was refused, or None."""
        return self._text(f"{topic}/failed/{REPORT}")

    def clear_failed(self, topic: str) -> None:
        """Remove the refused files, and the newest report last."""
        names = list(self._files.names(f"{topic}/failed/"))
        for name in sorted(names, key=lambda name: name == f"{topic}/failed/{REPORT}"):
            self._files.delete(name)

    def draft(self, topic: str, text: str, *, replace: bool = False) -> str:
        """Write a file that waits for a person, not for us; its name. A draft that differs is not overwritten."""
        place = _pending(check_topic(topic), DRAFT)
        if not replace and self._files.get(place) not in (None, text.encode()):
            raise UsageError(
                f"schemas/{place} is a draft with another content; deploy or delete it, or replace it with: "
                f"leanops schema infer {topic} --force"
            )
        self._files.put(place, text.encode())
        return DRAFT

    def place(self, topic: str, name: str) -> str:
        """Where a person finds a file that waits."""
        return self._files.place(_pending(topic, name))

    def _active_at(self, topic: str, version: int) -> Schema | None:
        """The active schema if it has this version: it was in force, whatever the archive holds."""
        with suppress(InvalidSchemaError):
            active = self.active(topic)
            return active if active and active.version == version else None
        return None

    def _keep_active(self, topic: str, data: bytes, version: int) -> None:
        """Archive what is replaced, even a file that was put into active/ by hand; a newer version is not replaced."""
        try:
            active = _parsed(_active(topic), data)
        except InvalidSchemaError:
            return
        if active.version > version:
            raise CommitRefusedError(f"{topic}: schema version {active.version} is active already, after {version}")
        if self._files.get(_archived(topic, active.version)) != data:
            self._files.put(_archived(topic, active.version), data)

    def _table(self, topic: str) -> str | None:
        with suppress(InvalidSchemaError, InvalidTopicError):
            active = self.active(topic)
            return active.table_name if active else None
        return None

    def _read(self, name: str) -> Schema | None:
        data = self._files.get(name)
        return None if data is None else _parsed(name, data)

    def _text(self, name: str) -> str | None:
        data = self._files.get(name)
        return None if data is None else _decoded(name, data)


@lru_cache(2_000)
def _parsed(name: str, data: bytes) -> Schema:
    return schema_from_json(_decoded(name, data), f"schemas/{name}", is_kept=True)


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        broken = Problem(Code.NOT_UTF8, "", "not UTF-8", "save the file as UTF-8")
        raise InvalidSchemaError(f"schemas/{name}", [broken]) from None


def _active(topic: str) -> str:
    return f"{check_topic(topic)}/active/schema.json"


def _archived(topic: str, version: int) -> str:
    return f"{check_topic(topic)}/archive/schema.v{version}.json"


def _pending(topic: str, name: str) -> str:
    return f"{topic}/pending/{name}"
