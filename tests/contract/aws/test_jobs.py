"""Jobs are started on AWS Glue, as moto plays it."""

import secrets
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest
from botocore.exceptions import ClientError

from leanops.adapters.aws.answers import connect
from leanops.adapters.aws.jobs import GlueJobs
from leanops.domain.errors import JobsUnavailableError, PermanentError
from leanops.ports.jobs import Jobs
from tests.support.engines import free_port


@pytest.fixture
def name(moto_endpoint: str) -> str:
    found = f"job-{secrets.token_hex(6)}"
    command = {"Name": "glueetl", "ScriptLocation": "s3://bucket/script.py"}
    boto3.client("glue", endpoint_url=moto_endpoint).create_job(Name=found, Role="role", Command=command)
    return found


@pytest.fixture
def jobs(moto_endpoint: str) -> Iterator[GlueJobs]:
    with closing(connect("glue", endpoint=moto_endpoint)) as client:
        yield GlueJobs(client)


def test_a_job_is_started_with_its_arguments(jobs: GlueJobs, name: str, moto_endpoint: str) -> None:
    port: Jobs = jobs
    runs = [port.start(name, {"topic": "orders", "file": f"{number}.json"}) for number in range(2)]
    client = boto3.client("glue", endpoint_url=moto_endpoint)
    found = [client.get_job_run(JobName=name, RunId=run)["JobRun"] for run in runs]
    assert [run["Arguments"] for run in found] == [
        {"--topic": "orders", "--file": "0.json"},
        {"--topic": "orders", "--file": "1.json"},
    ]


def test_a_job_nobody_made_is_a_permanent_error(jobs: GlueJobs) -> None:
    with pytest.raises(PermanentError, match="Glue has no job nowhere; apply the infrastructure"):
        jobs.start("nowhere", {})


@pytest.mark.parametrize(
    "code", ["ConcurrentRunsExceededException", "ResourceNumberLimitExceededException", "ThrottlingException"]
)
def test_as_many_runs_as_may_be_are_an_outage_that_passes(code: str) -> None:
    class Full:
        def start_job_run(self, **_: object) -> None:
            answer = {"Error": {"Code": code, "Message": "x"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(answer, "StartJobRun")

    with pytest.raises(JobsUnavailableError, match=f"Glue is too busy for job plan \\({code}\\); try again"):
        GlueJobs(Full()).start("plan", {})


def test_an_unreachable_server_is_an_outage_in_one_line() -> None:
    jobs = GlueJobs(connect("glue", endpoint=f"http://127.0.0.1:{free_port()}", attempts=1))
    with pytest.raises(JobsUnavailableError, match=r"does not answer .*try again"):
        jobs.start("plan", {})
