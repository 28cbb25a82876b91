"""Files in an S3 bucket."""

from collections.abc import Iterator
from typing import Any, Self, Unpack

from botocore.exceptions import ClientError

from leanops.adapters.aws.answers import Reach, answering, code_of, connect
from leanops.domain.errors import FilesUnavailableError
from leanops.ports.files import checked_name

GONE = {"404", "NoSuchKey"}
REPLACED = {"412", "ConditionalRequestConflict", "PreconditionFailed"}


class S3Files:
    """The Files port on a boto3 S3 client, which threads may share; every name lies under the prefix."""

    def __init__(self, client: Any, bucket: str, *, prefix: str = "") -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix

    @classmethod
    def connect(cls, bucket: str, *, prefix: str = "", **reach: Unpack[Reach]) -> Self:
        """Files with a client of their own."""
        return cls(connect("s3", **reach), bucket, prefix=prefix)

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        with self._about(f"the file {name}"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def replace(self, name: str, before: bytes | None, data: bytes) -> bool:
        key = self._key(name)
        with self._about(f"the file {name}"):
            try:
                condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": self._tag(key, before)}
                self._client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
            except ClientError as error:
                if code_of(error) in GONE | REPLACED:
                    return False
                raise
        return True

    def _tag(self, key: str, data: bytes) -> str:
        """The tag of an object that holds these bytes; a tag that no object has if it holds others."""
        found = self._client.get_object(Bucket=self._bucket, Key=key)
        return str(found["ETag"]) if found["Body"].read() == data else '"other"'

    def get(self, name: str) -> bytes | None:
        key = self._key(name)
        with self._about(f"the file {name}"):
            try:
                data: bytes = self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
            except ClientError as error:
                if code_of(error) in GONE:
                    return None
                raise
        return data

    def delete(self, name: str) -> None:
        key = self._key(name)
        with self._about(f"the file {name}"):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def make_folder(self, name: str) -> None:
        """A bucket has no folders."""

    def delete_same(self, name: str, data: bytes) -> None:
        key = self._key(name)
        with self._about(f"the file {name}"):
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=key)
                if found["Body"].read() == data:
                    self._client.delete_object(Bucket=self._bucket, Key=key, IfMatch=found["ETag"])
            except ClientError as error:
                if code_of(error) not in GONE | REPLACED:
                    raise

    def place(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def names(self, prefix: str) -> Iterator[str]:
        paginator = self._client.get_paginator("list_objects_v2")
        pages = iter(paginator.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix))
        while True:
            with self._about(f"the files {prefix}*"):
                page = next(pages, None)
            if page is None:
                return
            for item in page.get("Contents", []):
                yield item["Key"][len(self._prefix) :]

    def close(self) -> None:
        self._client.close()

    def _about(self, subject: str) -> Any:
        return answering("S3", f"bucket {self._bucket} for {subject}", FilesUnavailableError)

    def _key(self, name: str) -> str:
        return self._prefix + checked_name(name)
