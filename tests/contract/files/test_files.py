"""Every file store keeps the same promises: a folder, and S3 as moto plays it."""

import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.files import S3Files
from leanops.adapters.files.folder import Folder
from leanops.domain.errors import FileRefusedError, FilesUnavailableError, PermanentError
from tests.support.engines import free_port

Store: TypeAlias = Folder | S3Files

NAMES = [
    "plain",
    "dlq/orders/2026-11-15/1f3a.json",
    "claims/2026-11-15/Orders.v1~a+b%20c/0",
    "with blank/and 'quotes' \"too\"/&<>?#=:;,@$*|\\",
    "漢字/Ünïcödé/😀",
    ".hidden/..twice/...",
    "long/" + "x" * 255,
]
OUTSIDE = [
    "",
    "/",
    ".",
    "..",
    "../up",
    "a/../../up",
    "a/../b",
    "/etc/passwd",
    "a//b",
    "a/",
    "./a",
    "nul\0",
    "two\nlines",
    "\ud800",
]
TOO_LONG = ["x" * 256, "é" * 128, "/".join(["x" * 200] * 5)]


@pytest.fixture(params=["folder", "s3"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folder":
        yield Folder(tmp_path / "files")
        return
    endpoint, bucket = request.getfixturevalue("moto_endpoint"), f"leanops-{secrets.token_hex(6)}"
    client = connect("s3", endpoint=endpoint)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.put_object(Bucket=bucket, Key="beside/home", Body=b"not ours")
    yield S3Files(client, bucket, prefix="home/")
    client.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_comes_back_under_its_name(files: Store, name: str) -> None:
    data = name.encode() + b"\x00\xff\r\n"
    files.put(name, data)

    assert files.get(name) == data
    assert list(files.names("")) == [name]


@pytest.mark.parametrize("data", [b"", b"\x00", os.urandom(3_000_000)], ids=["empty", "nul", "3 MB"])
def test_bytes_come_back_exactly(files: Store, data: bytes) -> None:
    files.put("file", data)

    assert files.get("file") == data


def test_a_file_of_the_same_name_is_replaced(files: Store) -> None:
    files.put("a/file", b"a longer first text")
    files.put("a/file", b"second")

    assert files.get("a/file") == b"second"
    assert list(files.names("a/")) == ["a/file"]


def test_a_file_that_is_not_there_is_none(files: Store) -> None:
    files.put("a/file", b"data")

    assert files.get("missing") is None
    assert files.get("a/missing") is None
    assert files.get("a") is None
    assert files.get("a/file/below") is None


def test_a_deleted_file_is_gone_and_may_be_deleted_again(files: Store) -> None:
    files.put("a/file", b"data")
    files.put("a/other", b"data")

    files.delete("a/file")
    files.delete("a/file")
    files.delete("never/there")

    assert files.get("a/file") is None
    assert list(files.names("")) == ["a/other"]


def test_names_are_in_order_and_those_that_begin_so(files: Store) -> None:
    names = ["a", "b-c", "b.c/1", "b/1", "b/10", "b/2", "b/c/d", "bb", "c"]
    for name in reversed(names):
        files.put(name, b"")

    assert list(files.names("")) == names
    assert list(files.names("b/")) == ["b/1", "b/10", "b/2", "b/c/d"]
    assert list(files.names("b/1")) == ["b/1", "b/10"]
    assert list(files.names("nothing")) == []


@pytest.mark.parametrize("name", OUTSIDE + TOO_LONG, ids=lambda name: ascii(name)[:20])
def test_a_name_outside_the_folder_or_too_long_for_one_is_refused(files: Store, name: str) -> None:
    for call in (files.get, files.delete, lambda name: files.put(name, b"data")):
        with pytest.raises(PermanentError, match="not a valid file name"):
            call(name)

    assert list(files.names("")) == []


def test_a_file_is_deleted_only_while_it_holds_the_same(files: Store) -> None:
    files.put("a/file", b"data")
    files.delete_same("a/file", b"other")
    assert (files.get("a/file"), list(files.names(""))) == (b"data", ["a/file"])

    for _ in range(2):
        files.delete_same("a/file", b"data")
    files.delete_same("never/there", b"data")
    assert list(files.names("")) == []


def test_a_file_that_comes_while_another_is_deleted_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Folder(tmp_path)
    read_bytes = Path.read_bytes

    def read(path: Path) -> bytes:
        found = read_bytes(path)
        files.put("file", b"newest")
        return found

    for held in (b"read", b"replaced"):
        files.put("file", held)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", read)
            files.delete_same("file", b"read")
        assert (files.get("file"), [path.name for path in tmp_path.iterdir()]) == (b"newest", ["file"])


def test_an_object_that_comes_while_another_is_deleted_stays(
    moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = f"leanops-{secrets.token_hex(6)}"
    client = connect("s3", endpoint=moto_endpoint)
    files = S3Files(client, bucket)
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    files.put("file", b"read")
    delete = client.delete_object

    def late(**call: str) -> None:
        files.put("file", b"newest")
        delete(**call)

    monkeypatch.setattr(client, "delete_object", late)
    files.delete_same("file", b"read")
    assert files.get("file") == b"newest"
    client.close()


def test_links_are_neither_listed_nor_followed(tmp_path: Path) -> None:
    files = Folder(tmp_path / "files")
    files.put("a/file", b"data")
    (tmp_path / "files/b").mkdir()
    links = {"b/inside": "../a/file", "b/folder": "../a", "b/out": str(tmp_path), "b/nowhere": "gone"}
    for name, target in links.items():
        (tmp_path / "files" / name).symlink_to(target)

    assert list(files.names("")) == ["a/file"]
    calls = (files.get, files.delete, lambda name: files.put(name, b""), lambda name: files.delete_same(name, b"data"))
    for name in (*links, "b/folder/file", "b/out/files/a/file"):
        for call in calls:
            with pytest.raises(PermanentError, match="is a link or leads through one"):
                call(name)
    assert files.get("a/file") == b"data"


def test_an_unreachable_server_is_an_outage_in_one_line() -> None:
    files = S3Files(connect("s3", endpoint=f"http://127.0.0.1:{free_port()}", attempts=1), "bucket")

    with pytest.raises(FilesUnavailableError, match=r"does not answer .*try again") as raised:
        files.get("file")

    assert "\n" not in str(raised.value)
    with pytest.raises(FilesUnavailableError):
        list(files.names(""))


def test_a_bucket_that_is_not_there_is_a_permanent_error(moto_endpoint: str) -> None:
    files = S3Files(connect("s3", endpoint=moto_endpoint, attempts=1), "leanops-nowhere")

    with pytest.raises(PermanentError, match="S3 has no bucket leanops-nowhere for the file file; apply"):
        files.put("file", b"data")
    with pytest.raises(PermanentError):
        files.get("file")


def test_a_folder_that_cannot_be_written_is_an_outage_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "files").write_text("a file where the folder should be")

    with pytest.raises(FilesUnavailableError, match="check the folder"):
        Folder(tmp_path / "files").put("name", b"data")


def test_a_file_is_replaced_only_where_it_is_still_what_it_was(files: Store) -> None:
    assert not files.replace("a/b", b"0", b"1")
    assert files.get("a/b") is None
    assert files.replace("a/b", None, b"1")
    assert not files.replace("a/b", None, b"2")
    assert not files.replace("a/b", b"0", b"2")
    assert files.replace("a/b", b"1", b"2")
    assert (files.get("a/b"), list(files.names(""))) == (b"2", ["a/b"])


def test_a_folder_that_is_made_holds_no_file(files: Store) -> None:
    files.make_folder("orders/pending")
    files.make_folder("orders/pending")
    assert list(files.names("")) == []
    files.put("orders/pending/a.json", b"{}")
    assert list(files.names("orders/")) == ["orders/pending/a.json"]


REFUSALS = {
    **dict.fromkeys((errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.EIO), FileRefusedError),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EMFILE), FilesUnavailableError),
}


@pytest.mark.parametrize(("code", "error"), REFUSALS.items(), ids=map(errno.errorcode.get, REFUSALS))
def test_what_is_wrong_with_one_name_is_no_outage_and_a_full_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    files = Folder(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(error, match="the file name cannot be read or written"):
        files.get("name")
    with pytest.raises(error):
        files.put("name", b"data")


def test_a_folder_in_place_of_which_there_is_a_file_is_the_trouble_of_those_who_need_it(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    files.put("dlq/orders", b"a file where a folder belongs")
    with pytest.raises(FileRefusedError):
        files.put("dlq/orders/1.json", b"{}")
    files.put("dlq/bills/1.json", b"{}")
