"""Schema files in a folder: `{topic}/active/schema.json`, earlier versions in `{topic}/archive/`."""

from pathlib import Path

from leanops.adapters.files.folder import write_whole
from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Code, Problem
from leanops.domain.schema import Schema, schema_from_json
from leanops.domain.topics import check_topic


class SchemaFolder:
    """The Schemas port on a folder; every change is one rename."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def active(self, topic: str) -> Schema | None:
        return self._read(self._active(topic))

    def version(self, topic: str, version: int) -> Schema | None:
        found = self._read(self._archived(topic, version))
        if found is None:
            now = self.active(topic)
            found = now if now and now.version == version else None
        return found

    def activate(self, topic: str, schema: Schema, text: str) -> None:
        # The archive has every version before it is active: a batch that was begun can always find its schema.
        _write(self._archived(topic, schema.version), text)
        _write(self._active(topic), text)

    def topics(self) -> dict[str, str]:
        found = {}
        for path in sorted(self._root.glob("*/active/schema.json")):
            topic = path.parent.parent.name
            try:
                schema = self.active(topic)
            except InvalidSchemaError:
                continue
            if schema:
                found[topic] = schema.table_name
        return found

    def _active(self, topic: str) -> Path:
        return self._root / check_topic(topic) / "active" / "schema.json"

    def _archived(self, topic: str, version: int) -> Path:
        return self._root / check_topic(topic) / "archive" / f"schema.v{version}.json"

    def _read(self, path: Path) -> Schema | None:
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            broken = Problem(Code.NOT_UTF8, "", "not UTF-8", "save the file as UTF-8")
            raise InvalidSchemaError(str(path), [broken]) from None
        return schema_from_json(text, f"schemas/{path.relative_to(self._root)}")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
