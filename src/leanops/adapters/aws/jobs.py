"""Jobs on AWS Glue."""

from collections.abc import Mapping
from typing import Any, Self, Unpack

from leanops.adapters.aws.answers import Reach, answering, connect
from leanops.domain.errors import JobsUnavailableError


class GlueJobs:
    """The Jobs port on a boto3 Glue client; the argument `topic` becomes `--topic`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def connect(cls, **reach: Unpack[Reach]) -> Self:
        """Jobs with a client of their own."""
        return cls(connect("glue", **reach))

    def start(self, name: str, arguments: Mapping[str, str]) -> str:
        options = {f"--{key}": value for key, value in arguments.items()}
        with answering("Glue", f"job {name}", JobsUnavailableError):
            run: str = self._client.start_job_run(JobName=name, Arguments=options)["JobRunId"]
        return run

    def close(self) -> None:
        self._client.close()
