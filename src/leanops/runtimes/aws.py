"""The AWS runtime of ingestion: what the Lambda functions are put together from.

The functions are told by their environment: LEANOPS_AWS_TABLE_PREFIX, LEANOPS_AWS_QUEUE_PREFIX, LEANOPS_AWS_BUCKET,
LEANOPS_AWS_STREAM and LEANOPS_AWS_PROCESSOR, and every other setting by its usual variable. Region and credentials
are those of the function.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property

from leanops.adapters.aws.delivery import FirehoseDelivery
from leanops.adapters.aws.files import S3Files
from leanops.adapters.aws.queue import SqsQueue
from leanops.adapters.aws.state import DynamoState
from leanops.adapters.aws.switch import EventSourceSwitch
from leanops.domain.breaker import BreakerRules
from leanops.domain.errors import UsageError
from leanops.domain.topics import Databases
from leanops.ports.delivery import Delivery
from leanops.ports.files import Files
from leanops.ports.queue import Queue
from leanops.ports.state import StateStore
from leanops.settings import Settings, load_settings
from leanops.usecases.breaker import Breakers
from leanops.usecases.ingest import Processor
from leanops.usecases.patience import Patience
from leanops.usecases.registered import Registered


class Aws:
    """Ports on AWS; each client is made when it is first needed, so that a function starts with its own alone."""

    def __init__(
        self, settings: Settings | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.settings, self.clock = settings or load_settings(None), clock
        self.databases = Databases(raw=self.settings.raw_database)

    @cached_property
    def state(self) -> StateStore:
        """DynamoDB."""
        return DynamoState.connect(prefix=self.settings.aws_table_prefix)

    @cached_property
    def queue(self) -> Queue:
        """SQS."""
        return SqsQueue.connect(prefix=self.settings.aws_queue_prefix)

    @cached_property
    def files(self) -> Files:
        """The bucket of claim checks and dead letters."""
        return self.files_in(_named(self.settings.aws_bucket, "aws_bucket"))

    @cached_property
    def delivery(self) -> Delivery:
        """Firehose."""
        return FirehoseDelivery.connect(_named(self.settings.aws_stream, "aws_stream"))

    @cached_property
    def registered(self) -> Registered:
        """The registered topics."""
        return Registered(self.state, self.clock)

    @cached_property
    def breakers(self) -> Breakers:
        """The circuit breakers; one that opens switches the event source mapping of its queue off."""
        settings = self.settings
        rules = BreakerRules(
            error_rate=settings.breaker_error_rate,
            min_events=settings.breaker_min_events,
            window_ms=settings.breaker_window_s * 1000,
            pause_ms=settings.breaker_pause_s * 1000,
        )
        function = settings.aws_processor or os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
        switch = EventSourceSwitch.connect(_named(function, "aws_processor"), prefix=settings.aws_queue_prefix)
        return Breakers(self.state, self.clock, rules, switch)

    def files_in(self, bucket: str) -> Files:
        """The files of any bucket."""
        return S3Files.connect(bucket)

    def processor(self, patience: Patience) -> Processor:
        """The processor, as patient as its function's time allows."""
        return Processor(
            delivery=self.delivery,
            files=self.files,
            state=self.state,
            clock=self.clock,
            topic_of=self.registered.topic_of,
            idempotency_hours=self.settings.idempotency_hours,
            patience=patience,
        )

    def queue_of(self, arn: str) -> str:
        """The name of a queue without its prefix."""
        return arn.rpartition(":")[2].removeprefix(self.settings.aws_queue_prefix)


def _named(value: str, setting: str) -> str:
    if not value:
        raise UsageError(f"setting {setting} is empty; set LEANOPS_{setting.upper()}")
    return value
