"""The AWS runtime of ingestion: what the Lambda functions are put together from.

The functions read their settings from variables, those of `[aws]` above all. Region and credentials are those of the
function. A function needs a minute of time; the one for Firehose's error output uses all it is given.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Unpack

from leanops.adapters.aws.answers import Reach, connect
from leanops.adapters.aws.delivery import FirehoseDelivery
from leanops.adapters.aws.files import S3Files
from leanops.adapters.aws.jobs import GlueJobs
from leanops.adapters.aws.state import DynamoState
from leanops.adapters.aws.switch import EventSourceSwitch
from leanops.adapters.files.schemas import SchemaFiles
from leanops.domain.errors import UsageError
from leanops.ports.clock import millis
from leanops.ports.delivery import Delivery
from leanops.ports.files import Files, Objects
from leanops.ports.jobs import Jobs
from leanops.ports.queue import Queue
from leanops.ports.state import StateStore
from leanops.runtimes.queues import open_queue
from leanops.settings import Settings, load_settings
from leanops.usecases.ingest.breakers import Breakers
from leanops.usecases.ingest.known_topics import Registered
from leanops.usecases.ingest.process import Processor
from leanops.usecases.retry import Patience
from leanops.usecases.schemas.validate import Intake

SCHEMAS = "schemas/"


class Aws:
    """Ports on AWS; each client is made when it is first needed, so that a function starts with its own alone."""

    def __init__(
        self,
        settings: Settings | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        **reach: Unpack[Reach],
    ) -> None:
        self.settings, self.clock, self._reach = settings or load_settings(None), clock, reach

    @cached_property
    def state(self) -> StateStore:
        """DynamoDB."""
        return DynamoState(connect("dynamodb", **self._reach), prefix=self.settings.aws.table_prefix)

    @cached_property
    def queue(self) -> Queue:
        """SQS."""
        url = f"sqs:{self.settings.aws.queue_prefix}"
        return open_queue(url, lambda: millis(self.clock()), **self._reach)

    @cached_property
    def files(self) -> Files:
        """The bucket of claim checks and dead letters."""
        return S3Files(self._s3, self._named("bucket"))

    @cached_property
    def delivery(self) -> Delivery:
        """Firehose."""
        return FirehoseDelivery(connect("firehose", **self._reach), self._named("stream"))

    @cached_property
    def registered(self) -> Registered:
        """The registered topics."""
        return Registered(self.state, self.clock)

    @cached_property
    def breakers(self) -> Breakers:
        """The circuit breakers; one that opens switches the event source mapping of its queue off."""
        function, prefix = self._named("processor"), self.settings.aws.queue_prefix
        switch = EventSourceSwitch(connect("lambda", **self._reach), function, prefix=prefix)
        return Breakers(self.state, self.clock, self.settings.breaker, switch)

    @cached_property
    def jobs(self) -> Jobs:
        """Glue."""
        return GlueJobs(connect("glue", **self._reach))

    @cached_property
    def intake(self) -> Intake:
        """What judges schema files."""
        return Intake(SchemaFiles(S3Files(self._s3, self._named("bucket"), prefix=SCHEMAS)), self.state, self.clock)

    def start_schema_job(self, topic: str, name: str) -> str:
        """Have a schema file that waits planned on rows and activated; the id of the run."""
        return self.jobs.start(self._named("schema_job"), {"topic": topic, "file": name})

    def objects_in(self, bucket: str) -> Objects:
        """What others wrote into any bucket."""
        return S3Files(self._s3, bucket)

    def processor(self, patience: Patience) -> Processor:
        """The processor, as patient as its function's time allows."""
        return Processor(
            delivery=self.delivery,
            files=self.files,
            state=self.state,
            clock=self.clock,
            topic_of=self.registered.topic_of,
            rules=self.settings.ingest,
            patience=patience,
        )

    @cached_property
    def _s3(self) -> Any:
        return connect("s3", **self._reach)

    def queue_of(self, arn: str) -> str:
        """The name of a queue without its prefix."""
        return arn.rpartition(":")[2].removeprefix(self.settings.aws.queue_prefix)

    def _named(self, setting: str) -> str:
        if name := str(getattr(self.settings.aws, setting)):
            return name
        raise UsageError(f"setting [aws] {setting} is empty; set LEANOPS_AWS_{setting.upper()}")
