"""Jobs on AWS Glue."""

from collections.abc import Mapping
from typing import Any

from leanops.adapters.aws.answers import answering
from leanops.domain.errors import JobsUnavailableError


class GlueJobs:
    """The Jobs port on a boto3 Glue client; the argument `topic` becomes `--topic`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, name: str, arguments: Mapping[str, str]) -> str:
        options = {f"--{key}": value for key, value in arguments.items()}
        with answering("Glue", f"job {name}", JobsUnavailableError):
            run: str = self._client.start_job_run(JobName=name, Arguments=options)["JobRunId"]
        return run
