"""What `--json` prints, byte for byte: fields, or the form a type has of its own, at any depth."""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import pytest

from leanops.domain.breaker import State
from leanops.domain.problems import Code, Problem
from leanops.domain.schema.diff import Change, Difference, Kind
from leanops.domain.schema.infer import InferredColumn
from leanops.domain.schema.lint import Finding as Lint
from leanops.domain.schema.plan import Example, FailureGroup, SchemaPlan, Unseen
from leanops.domain.schema.types import ColumnType, DateFormat
from leanops.domain.table.batch import Batch
from leanops.domain.table.comparison import Comparison
from leanops.domain.table.history import Snapshot
from leanops.domain.table.operation import Stage, Work
from leanops.domain.table.outcome import Outcome
from leanops.entrypoints.cli.output import print_json, print_json_array
from leanops.ports.delivery import Waiting
from leanops.ports.queue import Depth
from leanops.runtimes.doctor import Finding
from leanops.usecases.cycle.job import TopicResult
from leanops.usecases.operations.plan_rollback import Rollback
from leanops.usecases.pipeline.run_history import LayerResult
from leanops.usecases.schemas.infer import Inferred
from leanops.views.background import Background, BreakerStatus, WorkerStatus
from leanops.views.balance import Balance, Check
from leanops.views.operations import Unfinished
from leanops.views.status import TopicStatus
from leanops.views.topics import TableState, TopicTable

ROUNDED = 2**62 + 1
"""An id that a reader of JSON with doubles cannot hold."""
AT = datetime(2026, 11, 15, 8, tzinfo=UTC)
UNSEEN = Problem(Code.PATH_UNSEEN, "/keys/version", "nobody sends it", "look again")
UNSEEN_TEXT = '"code":"path_unseen","pointer":"/keys/version","message":"nobody sends it","hint":"look again"'
ADDED = Change(Kind.ADDITIVE, "/x", "column x")
DIFFERENCE_TEXT = (
    '{"kind":"additive","changes":'
    '[{"kind":"additive","pointer":"/x","what":"column x","changes_rows":false,"needs_raw":false}]}'
)


class Tone(StrEnum):
    LOUD = "loud"


class Mark(msgspec.Struct):
    number: int


@dataclass(frozen=True)
class Formed:
    number: int

    def as_json(self) -> dict[str, Any]:
        return {"number": self.number, "doubled": [self.number, Mark(2 * self.number)]}


@dataclass(frozen=True)
class Holder:
    name: str
    held: tuple[Formed, ...] = (Formed(1),)
    by_name: dict[str, Formed] = field(default_factory=lambda: {"two": Formed(2)})


BATCH = Batch("b1", "orders", "standardized", "u", None, 7, ROUNDED, 3, 1, 0, 1)
LAYER = LayerResult(BATCH, {"read": 3, "inserted": 3}, Snapshot(ROUNDED, None, 1, "append", {}), 1.23456)
PLAN = SchemaPlan(
    "orders",
    Difference((ADDED,)),
    "raw",
    rows=2,
    judged=1,
    is_sample=True,
    failures=(FailureGroup("rule_min", "a", "too small", 1, (Example("m1", None),)),),
    ddl=("ALTER",),
    unseen=(Unseen("/keys/version", "keys.version", "$.v", 2, None),),
    problems=(UNSEEN,),
)
INFERRED = Inferred(
    topic="orders",
    text="{}",
    rows=4,
    events=3,
    is_sample=False,
    keys={"version": "$.v"},
    columns=(
        InferredColumn("a", "$.a", ColumnType("DECIMAL", 18, 2), DateFormat.ISO, True, "hmac", 3, "why"),
        InferredColumn("d", "$.d", ColumnType("DATE"), DateFormat.COMPACT, False, None, 2, "why"),
    ),
    notes=("look",),
    never_filled=("$.z",),
)
STATUS = TopicStatus(
    topic="orders",
    status="READY",
    reason=None,
    schema_version=1,
    raw_rows=5,
    standardized_rows=4,
    curated_rows=3,
    open_errors={"parse_errors": 2, "errors": 1},
    lag_rows=None,
    last_batch="261115080000-x",
    last_batch_at=AT,
    balance=Balance((Check("c", 1, 2),), ("p",), ("n",)),
    failures={"curated": "parked"},
    warnings=("careful",),
    operation=Unfinished(Work.REBUILD, "rebuild stopped", Stage.BUILDING, AT, "ann", None, None, "go on"),
)
BACKGROUND = Background(
    workers=(WorkerStatus("processor", "me", "failing", AT, AT, 3, 1, "away"),),
    queues={"orders": Depth(2, 1, 1_000), "payments": Depth(0, 0)},
    delivery=Waiting(5, 100, None, 4),
    undrained=6,
    stopped={"payments": "by hand"},
    now_ms=9_999,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"at": AT, "day": date(2026, 11, 15), "tone": Tone.LOUD},
            '{"at":"2026-11-15T08:00:00Z","day":"2026-11-15","tone":"loud"}',
        ),
        ([Decimal("1.10"), 2**70, 0.5, None, True], "[1.10,1180591620717411303424,0.5,null,true]"),
        ({"mark": Mark(3), "odd": Ellipsis}, '{"mark":{"number":3},"odd":"Ellipsis"}'),
        (
            Holder("outer"),
            '{"name":"outer","held":[{"number":1,"doubled":[1,{"number":2}]}],'
            '"by_name":{"two":{"number":2,"doubled":[2,{"number":4}]}}}',
        ),
        (
            Comparison(1, 2, "a", "b", 0, 0, 0, ("m1",)),
            '{"rows_before":1,"rows_after":2,"checksum_before":"a","checksum_after":"b","failing":0,"lost":0,'
            '"gone":0,"examples":["m1"]}',
        ),
        (
            Rollback("orders", ROUNDED, None, 3, 2, ("b2",), 1, False),
            '{"topic":"orders","snapshot":"4611686018427387905","curated_snapshot":null,"rows_now":3,"rows_then":2,'
            '"batches":["b2"],"read_again":1,"by_replace":false,"leaving":null}',
        ),
        (
            TopicResult("orders", Outcome.DONE, None, {"standardized": LAYER}, ["careful"], OSError("secret")),
            '{"topic":"orders","outcome":"done","reason":null,"warnings":["careful"],"standardized":{"read":3,'
            '"inserted":3,"batch_id":"b1","source_snapshot":"4611686018427387905",'
            '"target_snapshot":"4611686018427387905","seconds":1.235}}',
        ),
        (Difference((ADDED,)), DIFFERENCE_TEXT),
        (
            PLAN,
            f'{{"topic":"orders","difference":{DIFFERENCE_TEXT},"source":"raw","rows":2,"judged":1,"is_sample":true,'
            '"failing":0,"failing_today":0,"leaving":0,"resolved":0,"changed":0,"cde_missing":0,"failures":'
            '[{"rule":"rule_min","column":"a","message":"too small","rows":1,"examples":'
            '[{"message_id":"m1","value":null}]}],"parse_errors":null,"missing_keys":null,"version_fallback":null,'
            '"ddl":["ALTER"],"needs":"nothing","unseen":[{"pointer":"/keys/version","name":"keys.version",'
            f'"path":"$.v","events":2,"nearest":null}}],"problems":[{{{UNSEEN_TEXT}}}],"safe":false}}',
        ),
        (
            INFERRED,
            '{"topic":"orders","rows":4,"events":3,"is_sample":false,"keys":{"version":"$.v"},"columns":'
            '[{"name":"a","path":"$.a","type":"DECIMAL(18,2)","cde":true,"pii":"hmac","description":"why","events":3},'
            '{"name":"d","path":"$.d","type":"DATE","format":"yyyyMMdd","description":"why","events":2}],'
            '"notes":["look"],"never_filled":["$.z"]}',
        ),
        (Finding("java", False, "none", "install it"), '{"name":"java","ok":false,"found":"none","fix":"install it"}'),
        (Lint("a.json", 3, UNSEEN), f'{{"file":"a.json","line":3,{UNSEEN_TEXT}}}'),
        (
            TopicTable("raw", "raw_db.orders", True, 0, 1),
            '{"layer":"raw","name":"raw_db.orders","exists":true,"payload_columns":0,"snapshots":1}',
        ),
        (
            TableState(str(ROUNDED), AT, "batch", "b1", 3, "now"),
            '{"snapshot":"4611686018427387905","at":"2026-11-15T08:00:00Z","kind":"batch","batch":"b1","rows":3,'
            '"place":"now"}',
        ),
        (
            BreakerStatus("orders", State.OPEN, AT, True, "why", 2, 1),
            '{"topic":"orders","state":"OPEN","since":"2026-11-15T08:00:00Z","by_hand":true,"reason":"why",'
            '"succeeded":2,"failed":1}',
        ),
        (
            STATUS,
            '{"topic":"orders","status":"READY","reason":null,"operation":{"work":"rebuild",'
            '"state":"rebuild stopped","stage":"building","begun_at":"2026-11-15T08:00:00Z","actor":"ann",'
            '"worker":null,"blocked":null,"sentence":"go on"},"schema_version":1,"raw_rows":5,"standardized_rows":4,'
            '"curated_rows":3,"open_errors":{"parse_errors":2,"errors":1},"lag_rows":null,'
            '"last_batch":"261115080000-x","last_batch_at":"2026-11-15T08:00:00Z","failures":{"curated":"parked"},'
            '"warnings":["careful"],"balanced":false,"checks":[{"name":"c","expected":1,"found":2,"balanced":false}],'
            '"problems":["p"],"notes":["n"]}',
        ),
        (
            BACKGROUND,
            '{"workers":[{"part":"processor","worker":"me","state":"failing","since":"2026-11-15T08:00:00Z",'
            '"beat":"2026-11-15T08:00:00Z","done":3,"failed":1,"error":"away","doing":null,"doing_since":null}],'
            '"queues":{"orders":{"visible":2,"in_flight":1,"oldest_s":8},'
            '"payments":{"visible":0,"in_flight":0,"oldest_s":null}},"delivery":{"waiting":5,"landing":4},'
            '"undrained":6,"stopped":{"payments":"by hand"},"shortage":null}',
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_a_value_is_printed_in_one_form(value: object, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(value)
    assert capsys.readouterr().out == f"{text}\n"
    print_json_array([value, value])
    assert capsys.readouterr().out == f"[{text},\n{text}]\n"
