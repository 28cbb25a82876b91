"""Schema files keep the same promises on every file store: a folder, and S3 as moto plays it."""

import secrets
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.files import S3Files
from leanops.adapters.files.folder import Folder
from leanops.adapters.files.schemas import SchemaFiles
from leanops.domain.errors import CommitRefusedError, InvalidSchemaError, InvalidTopicError, UsageError
from leanops.domain.schema.model import schema_from_json
from leanops.ports.files import Files
from leanops.ports.schemas import Pending
from leanops.usecases.schemas.inbox import take_pending
from leanops.usecases.topics.registry import add_topic
from tests.support.builders import column, platform_in, schema, schema_text
from tests.unit.schemas.test_inbox import Killed, Stopping


@pytest.fixture(params=["folder", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "folder":
        yield Folder(tmp_path / "schemas")
        return
    endpoint, bucket = request.getfixturevalue("moto_endpoint"), f"leanops-{secrets.token_hex(6)}"
    client = connect("s3", endpoint=endpoint)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield S3Files(client, bucket, prefix="schemas/")
    client.close()


@pytest.fixture
def schemas(files: Files) -> SchemaFiles:
    return SchemaFiles(files)


def go_live(schemas: SchemaFiles, topic: str = "orders", **members: object) -> None:
    version = schema(**members).version
    schemas.keep(topic, version, schema_text(**members))
    schemas.activate(topic, version)


def test_a_store_without_schemas_has_none(schemas: SchemaFiles) -> None:
    assert (schemas.active("orders"), schemas.version("orders", 1), schemas.text("orders", 1)) == (None, None, None)
    assert (schemas.topics(), schemas.versions("orders"), schemas.pending()) == ({}, [], [])
    assert (schemas.read_pending("orders", "a.json"), schemas.failed("orders")) == (None, None)


def test_activating_twice_is_the_same_as_once(schemas: SchemaFiles, files: Files) -> None:
    for _ in range(2):
        go_live(schemas)
    assert schemas.active("orders") == schemas.version("orders", 1) == schema()
    assert list(files.names("")) == ["orders/active/schema.json", "orders/archive/schema.v1.json"]


def test_a_version_that_is_kept_is_readable_and_not_active_yet(schemas: SchemaFiles) -> None:
    go_live(schemas)
    schemas.keep("orders", 2, schema_text(column("d"), version=2))
    assert schemas.active("orders") == schema()
    assert schemas.version("orders", 2) == schema(column("d"), version=2)
    assert schemas.text("orders", 2) == schema_text(column("d"), version=2)
    assert schemas.versions("orders") == [1, 2]


def test_a_version_deployed_before_a_name_was_reserved_stays_readable(schemas: SchemaFiles) -> None:
    text = schema_text(column("__v"), version=2)
    with pytest.raises(InvalidSchemaError, match="'__v' is a name that"):
        schema_from_json(text, "schema.json")
    schemas.keep("orders", 2, text)
    schemas.activate("orders", 2)
    assert [one.name for one in schemas.active("orders").payload_columns] == ["__v"]


def test_every_version_stays_readable_and_an_older_one_does_not_come_back(schemas: SchemaFiles) -> None:
    for version in (1, 2, 10):
        go_live(schemas, version=version)
    assert [schemas.version("orders", version) for version in (1, 2, 10)] == [
        schema(version=1),
        schema(version=2),
        schema(version=10),
    ]
    assert schemas.versions("orders") == [1, 2, 10]
    with pytest.raises(CommitRefusedError, match="version 10 is active already, after 2"):
        schemas.activate("orders", 2)
    assert schemas.active("orders") == schema(version=10)


def test_a_version_that_comes_late_replaces_no_newer_one(files: Files) -> None:
    go_live(SchemaFiles(files))

    class Late:
        """A store on which another worker is first whenever a file is to be replaced."""

        def replace(self, name: str, before: bytes | None, data: bytes) -> bool:
            go_live(SchemaFiles(files), version=3)
            return files.replace(name, before, data)

        def __getattr__(self, name: str) -> object:
            return getattr(files, name)

    SchemaFiles(files).keep("orders", 2, schema_text(version=2))
    schemas = SchemaFiles(Late())  # type: ignore[arg-type]
    with pytest.raises(CommitRefusedError, match="another schema became active meanwhile"):
        schemas.activate("orders", 2)
    assert schemas.active("orders") == schema(version=3)


def test_a_version_that_is_kept_is_never_replaced(schemas: SchemaFiles) -> None:
    first, second = schema_text(version=2), schema_text(column("d"), version=2)
    for _ in range(2):
        schemas.keep("orders", 2, first)
    with pytest.raises(CommitRefusedError, match="another schema was kept as version 2"):
        schemas.keep("orders", 2, second)
    assert schemas.text("orders", 2) == first


def test_a_version_that_was_never_kept_cannot_become_active(schemas: SchemaFiles) -> None:
    go_live(schemas)
    with pytest.raises(UsageError, match="no schema version 7; see: leanops schema history orders"):
        schemas.activate("orders", 7)
    assert schemas.active("orders") == schema()


def test_a_file_put_there_by_hand_is_its_own_version(schemas: SchemaFiles, files: Files) -> None:
    files.put("orders/active/schema.json", schema_text(version=5).encode())
    assert (schemas.version("orders", 5), schemas.version("orders", 4)) == (schema(version=5), None)
    assert (schemas.text("orders", 5), schemas.text("orders", 4)) == (schema_text(version=5), None)
    assert schemas.versions("orders") == [5]


def test_a_broken_file_is_named_and_does_not_hide_the_others(schemas: SchemaFiles, files: Files) -> None:
    for topic in ("users", "orders"):
        go_live(schemas, topic, table_name=topic)
    assert schemas.topics() == {"orders": "orders", "users": "users"}
    files.put("orders/active/schema.json", b"\xff")
    files.put("no/active/schema.json", schema_text().encode())
    with pytest.raises(InvalidSchemaError, match=r"schemas/orders/active/schema\.json: not UTF-8"):
        schemas.active("orders")
    files.put("orders/active/schema.json", b"{")
    with pytest.raises(InvalidSchemaError, match=r"schemas/orders/active/schema\.json: not JSON"):
        schemas.active("orders")
    assert schemas.topics() == {"users": "users"}


@pytest.mark.parametrize("topic", ["../evil", "a/b", ""])
def test_a_topic_that_is_none_never_becomes_a_file(schemas: SchemaFiles, files: Files, topic: str) -> None:
    for call in (lambda: schemas.keep(topic, 1, "{}"), lambda: schemas.draft(topic, "{}")):
        with pytest.raises(InvalidTopicError):
            call()
    assert list(files.names("")) == []


def test_the_files_that_wait_are_listed_without_drafts_and_scratch(schemas: SchemaFiles, files: Files) -> None:
    waiting = ["orders/pending/a.json", "orders/pending/b.v2.json", "users/pending/schema.json", "x/pending/c.json"]
    beside = [
        "orders/pending/.d.json.swp",
        "orders/pending/.e.json",
        "orders/pending/notes.txt",
        "orders/pending/below/f.json",
        "orders/failed/g.json",
        "orders/mine.draft.json",
        "pending/h.json",
    ]
    for name in [*waiting, *beside]:
        files.put(name, b"{}")
    assert schemas.draft("orders", "{}\n") == "schema.draft.json"
    assert files.get("orders/pending/schema.draft.json") == b"{}\n"
    assert schemas.pending() == [
        Pending("orders", "a.json"),
        Pending("orders", "b.v2.json"),
        Pending("users", "schema.json"),
        Pending("x", "c.json"),
    ]


def test_a_file_is_withdrawn_unless_it_was_replaced_meanwhile(schemas: SchemaFiles, files: Files) -> None:
    files.put("orders/pending/a.json", b"one")
    assert schemas.read_pending("orders", "a.json") == b"one"
    files.put("orders/pending/a.json", b"two")
    schemas.withdraw("orders", "a.json", b"one")
    assert files.get("orders/pending/a.json") == b"two"
    for _ in range(2):
        schemas.withdraw("orders", "a.json", b"two")
    assert schemas.pending() == []


@pytest.mark.parametrize(("name", "kept"), [("a.json", "a.json"), ("error.json", "error.schema.json")])
def test_a_refused_file_lies_beside_its_report_until_it_is_cleared(
    schemas: SchemaFiles, files: Files, name: str, kept: str
) -> None:
    files.put(f"orders/pending/{name}", b"\xff")
    schemas.fail("orders", name, b"\xff", "why\n")
    assert {one: files.get(one) for one in files.names("")} == {
        f"orders/failed/{kept}": b"\xff",
        "orders/failed/error.json": b"why\n",
        f"orders/failed/reports/{name}": b"why\n",
    }
    assert schemas.failed("orders") == "why\n"
    schemas.clear_failed("orders")
    assert (list(files.names("")), schemas.failed("orders")) == ([], None)


def test_every_refused_file_has_a_report_of_its_own_and_the_newest_is_told(schemas: SchemaFiles, files: Files) -> None:
    for name, report in (("a.json", "one"), ("b.json", "two"), ("a.json", "three")):
        schemas.fail("orders", name, b"{", report)
    reports = {name: files.get(f"orders/failed/reports/{name}") for name in ("a.json", "b.json")}
    assert (reports, schemas.failed("orders")) == ({"a.json": b"three", "b.json": b"two"}, "three")
    schemas.clear_failed("orders")
    assert list(files.names("")) == []


def test_a_draft_somebody_changed_is_replaced_only_if_told(schemas: SchemaFiles, files: Files) -> None:
    name = "orders/pending/schema.draft.json"
    for _ in range(2):
        schemas.draft("orders", "one")
    with pytest.raises(UsageError, match=f"schemas/{name} is a draft .* leanops schema infer orders --force"):
        schemas.draft("orders", "two")
    assert files.get(name) == b"one"
    schemas.draft("orders", "two", replace=True)
    assert files.get(name) == b"two"


def test_a_file_put_there_by_hand_stays_readable_after_the_next_one(schemas: SchemaFiles, files: Files) -> None:
    by_hand = schema_text(column("b"), version=5)
    files.put("orders/active/schema.json", by_hand.encode())
    for _ in range(2):
        go_live(schemas, version=6)
    assert (schemas.text("orders", 5), schemas.versions("orders")) == (by_hand, [5, 6])
    files.put("orders/active/schema.json", b"{")
    schemas.activate("orders", 5)
    assert schemas.active("orders") == schema(column("b"), version=5)
    assert schemas.version("orders", 6) == schema(version=6)


@pytest.mark.parametrize("text", [schema_text(), "{"], ids=["good", "bad"])
def test_a_file_is_taken_to_the_same_end_wherever_its_store_was_left(tmp_path: Path, files: Files, text: str) -> None:
    pending, ends = Pending("orders", "new.json"), []
    for write in count(1):
        with platform_in(tmp_path / str(write)) as made:
            add_topic(made, "orders")
            files.put("orders/pending/new.json", text.encode())
            store = Stopping(files, [write])
            try:
                take_pending(replace(made, schemas=SchemaFiles(store)), pending)
                is_killed = False
            except Killed:
                is_killed = True
                made.clock.advance(made.rules.pipeline.lease_s + 1)
                take_pending(replace(made, schemas=SchemaFiles(files)), pending)
        ends.append(list(files.names("")))
        for name in ends[-1]:
            files.delete(name)
        if not is_killed:
            break
    good = ["orders/active/schema.json", "orders/archive/schema.v1.json"]
    bad = ["orders/failed/error.json", "orders/failed/new.json", "orders/failed/reports/new.json"]
    assert len(ends) > 3
    assert ends == [bad if text == "{" else good] * len(ends)
