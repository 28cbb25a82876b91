"""Files in an S3 bucket."""

from collections.abc import Iterator
from typing import Any

from leanops.adapters.aws.answers import allowing, answering, pages
from leanops.domain.errors import FilesUnavailableError
from leanops.ports.files import checked_name

GONE = {"404", "NoSuchKey"}
BEYOND = {"416", "InvalidRange"}
REPLACED = {"412", "ConditionalRequestConflict", "PreconditionFailed"}


class S3Files:
    """The Files and Objects ports on a boto3 S3 client, which threads may share; names of files follow the prefix."""

    def __init__(self, client: Any, bucket: str, *, prefix: str = "") -> None:
        self.client, self._bucket, self._prefix = client, bucket, prefix

    def put(self, name: str, data: bytes) -> None:
        with self._about(f"the file {name}"):
            self.client.put_object(Bucket=self._bucket, Key=self._key(name), Body=data)

    def replace(self, name: str, before: bytes | None, data: bytes) -> bool:
        key = self._key(name)
        with self._about(f"the file {name}"), allowing(GONE | REPLACED):
            condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": self._tag(key, before)}
            self.client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
            return True
        return False

    def _tag(self, key: str, data: bytes) -> str:
        """The tag of an object that holds these bytes; a tag that no object has if it holds others."""
        stored = self.client.get_object(Bucket=self._bucket, Key=key)
        return str(stored["ETag"]) if stored["Body"].read() == data else '"other"'

    def get(self, name: str) -> bytes | None:
        with self._about(f"the file {name}"), allowing(GONE):
            return bytes(self.client.get_object(Bucket=self._bucket, Key=self._key(name))["Body"].read())
        return None

    def part(self, key: str, start: int, size: int) -> bytes | None:
        """Of any object of the bucket, by the name that S3 knows it by."""
        span = f"bytes={start}-{start + size - 1}"
        with self._about("an object"), allowing(GONE):
            with allowing(BEYOND):
                return bytes(self.client.get_object(Bucket=self._bucket, Key=key, Range=span)["Body"].read())
            return b""
        return None

    def delete(self, name: str) -> None:
        with self._about(f"the file {name}"):
            self.client.delete_object(Bucket=self._bucket, Key=self._key(name))

    def make_folder(self, name: str) -> None:
        """A bucket has no folders."""

    def delete_same(self, name: str, data: bytes) -> None:
        key = self._key(name)
        with self._about(f"the file {name}"), allowing(GONE | REPLACED):
            stored = self.client.get_object(Bucket=self._bucket, Key=key)
            if stored["Body"].read() == data:
                self.client.delete_object(Bucket=self._bucket, Key=key, IfMatch=stored["ETag"])

    def place(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def names(self, prefix: str) -> Iterator[str]:
        target = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        for page in pages(self.client, "list_objects_v2", self._about(f"the files {prefix}*"), **target):
            yield from (item["Key"][len(self._prefix) :] for item in page.get("Contents", []))

    def _about(self, subject: str) -> Any:
        return answering("S3", f"bucket {self._bucket} for {subject}", FilesUnavailableError)

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name)
