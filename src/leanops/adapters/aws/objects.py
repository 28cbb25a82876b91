"""Objects that other programs wrote to an S3 bucket, read in parts."""

from typing import Any

from botocore.exceptions import ClientError

from leanops.adapters.aws.answers import answering, code_of
from leanops.adapters.aws.files import GONE
from leanops.domain.errors import FilesUnavailableError

BEYOND = {"416", "InvalidRange"}


class S3Objects:
    """Any object of a bucket, by the name S3 gave it; on a boto3 client, which threads may share."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client, self._bucket = client, bucket

    def part(self, key: str, start: int, size: int) -> bytes | None:
        asked = f"bytes={start}-{start + size - 1}"
        with answering("S3", f"bucket {self._bucket} for an object", FilesUnavailableError):
            try:
                data: bytes = self._client.get_object(Bucket=self._bucket, Key=key, Range=asked)["Body"].read()
            except ClientError as error:
                if code_of(error) in GONE:
                    return None
                if code_of(error) in BEYOND:
                    return b""
                raise
        return data
