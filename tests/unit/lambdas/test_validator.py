"""The validator of schema files on S3: bad ones fail, sound ones start the job that looks at rows."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from leanops.adapters.files.folder import Folder
from leanops.domain.errors import JobsUnavailableError, UsageError
from leanops.entrypoints.lambdas.validator import validate
from leanops.runtimes.aws import Aws
from leanops.settings import AwsNames, Settings
from leanops.usecases.platform import Platform
from leanops.usecases.schemas.deploy import deploy_schema
from leanops.usecases.schemas.validate import Intake
from leanops.usecases.topics.registry import find_topic
from tests.support.builders import column, schema_text
from tests.support.functions import Time


class Started:
    """Jobs that remember how they were started, after so many outages."""

    def __init__(self, outages: int = 0) -> None:
        self.runs: list[tuple[str, Mapping[str, str]]] = []
        self.outages = outages

    def start(self, name: str, arguments: Mapping[str, str]) -> str:
        self.outages -= 1
        if self.outages >= 0:
            raise JobsUnavailableError("Glue is too busy; try again")
        self.runs.append((name, arguments))
        return f"jr_{len(self.runs)}"


def aws_on(platform: Platform, jobs: Started, job: str = "plan") -> Aws:
    aws = Aws(Settings(aws=AwsNames(bucket="b", schema_job=job)), platform.clock)
    aws.__dict__.update(jobs=jobs, intake=Intake(platform.schemas, platform.state, platform.clock))
    return aws


def created(key: str, bucket: str = "b") -> dict[str, Any]:
    """EventBridge's event of a new object."""
    return {
        "version": "0",
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1, "etag": "e"}, "reason": "PutObject"},
    }


def put(folder: Folder, text: str | bytes, name: str = "orders/pending/new.json") -> dict[str, Any]:
    folder.put(name, text if isinstance(text, bytes) else text.encode())
    return created(f"schemas/{name}")


def test_a_sound_file_starts_the_job_and_stays_until_it_has_run(platform: Platform, folder: Folder) -> None:
    jobs = Started()
    event = put(folder, schema_text(), "orders/pending/a b+ü%20.json")
    before = list(folder.names(""))
    assert [validate(aws_on(platform, jobs), event, Time()) for _ in range(2)] == ["sound", "sound"]
    assert jobs.runs == [("plan", {"topic": "orders", "file": "a b+ü%20.json"})] * 2
    assert list(folder.names("")) == before
    assert platform.schemas.active("orders") is None


def test_a_file_that_was_taken_meanwhile_starts_nothing(platform: Platform, folder: Folder) -> None:
    jobs = Started()
    event = put(folder, schema_text())
    folder.delete("orders/pending/new.json")
    assert (validate(aws_on(platform, jobs), event, Time()), jobs.runs) == ("gone", [])


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\xff", "not_utf8"),
        (schema_text(table_name="other"), "table_renamed"),
        (schema_text(column(path="$.elsewhere")), "breaking_change"),
    ],
)
def test_a_bad_or_breaking_file_fails_without_a_job(
    platform: Platform, folder: Folder, content: str | bytes, code: str
) -> None:
    deploy_schema(platform, "orders", schema_text(), "schema.json")
    jobs = Started()
    assert validate(aws_on(platform, jobs), put(folder, content), Time()) == "failed"
    assert [found["code"] for found in json.loads(platform.schemas.failed("orders") or "")["problems"]] == [code]
    assert (jobs.runs, platform.schemas.pending()) == ([], [])
    assert find_topic(platform, "orders").processing_enabled


def test_a_breaking_file_that_asks_for_a_rebuild_goes_to_the_job(platform: Platform, folder: Folder) -> None:
    deploy_schema(platform, "orders", schema_text(), "schema.json")
    jobs = Started()
    text = schema_text(column(path="$.elsewhere"), policies={"on_breaking": "rebuild"})
    assert validate(aws_on(platform, jobs), put(folder, text), Time()) == "sound"
    assert len(jobs.runs) == 1


@pytest.mark.parametrize(
    "event",
    [
        created("schemas/orders/pending/new.json", bucket="another"),
        created("schemas/orders/pending/mine.draft.json"),
        created("schemas/orders/failed/new.json"),
        created("schemas/orders/active/schema.json"),
        created("schemas/orders/pending/below/new.json"),
        created("schemas/orders/pending/notes.txt"),
        created("elsewhere/schemas/orders/pending/new.json"),
    ],
)
def test_other_objects_are_ignored(platform: Platform, folder: Folder, event: dict[str, Any]) -> None:
    jobs = Started()
    folder.put("orders/pending/new.json", b"{")
    assert (validate(aws_on(platform, jobs), event, Time()), jobs.runs) == ("ignored", [])
    assert list(folder.names("")) == ["orders/pending/new.json"]


def test_an_outage_is_waited_out_and_then_the_event_comes_again(platform: Platform, folder: Folder) -> None:
    event, jobs = put(folder, schema_text()), Started(outages=2)
    assert validate(aws_on(platform, jobs), event, Time()) == "sound"
    assert len(jobs.runs) == 1
    with pytest.raises(JobsUnavailableError):
        validate(aws_on(platform, Started(outages=1_000)), event, Time(questions=3))
    assert platform.schemas.pending() != []


def test_a_job_without_a_name_is_told(platform: Platform, folder: Folder) -> None:
    with pytest.raises(UsageError, match="set LEANOPS_AWS_SCHEMA_JOB"):
        validate(aws_on(platform, Started(), job=""), put(folder, schema_text()), Time())


def test_the_function_brings_in_no_spark_and_no_arrow() -> None:
    heavy = "{'pyspark', 'pyarrow', 'sqlalchemy'}"
    code = f"import sys, leanops.entrypoints.lambdas.validator; print(*({heavy} & {{*sys.modules}}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""
