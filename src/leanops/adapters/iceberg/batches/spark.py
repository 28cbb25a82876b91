"""Runs tasks on Spark."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from leanops.adapters.iceberg.batches.runner import Further, Gather, Item, Result, Shuffled, Spread, portable

TASKS_PER_CORE = 4


class SparkRunner:
    """The Runner of a Spark application, which `session` starts if need be."""

    def __init__(self, session: Callable[[], Any]) -> None:
        self._session = session

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Exception]:
        try:
            return self._job(function, items)
        except Exception as failure:  # noqa: BLE001 - what fails is the items' alone
            if len(items) == 1:
                return [failure]
            # A worker that was killed fails the whole job: run the items one by one, so that only its own item fails.
            return [self._alone(function, item) for item in items]

    def shuffle(self, spread: Spread[Item], items: Sequence[Item], parts: int) -> Shuffled:
        context = self._session().sparkContext
        pairs = context.parallelize(items, max(1, len(items))).flatMap(spread)
        return _OnSpark(context, pairs, parts)

    @property
    def cores(self) -> int:
        return int(self._session().sparkContext.defaultParallelism)

    def _alone(self, function: Callable[[Item], Result], item: Item) -> Result | Exception:
        try:
            return self._job(function, [item])[0]
        except Exception as failure:  # noqa: BLE001 - what fails is that item's alone
            return failure

    def _job(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Exception]:
        context = self._session().sparkContext
        slices = min(len(items), context.defaultParallelism * TASKS_PER_CORE)
        answers: list[Result | Exception] = context.parallelize(items, slices).map(_Guarded(function)).collect()
        return answers


class _OnSpark:
    """A shuffled RDD; what was written for the shuffle serves every job on it."""

    def __init__(self, context: Any, pairs: Any, parts: int) -> None:
        # One more than the parts: what goes beyond them is read first, by itself.
        self._context, self._parts, self._pairs = context, parts, pairs.partitionBy(parts + 1, int)

    def part(self, number: int) -> list[bytes]:
        values: list[bytes] = self._context.runJob(self._pairs, _values, [number])
        return values

    def gather(self, function: Gather[Result], parts: Sequence[int]) -> list[Result | Exception]:
        answers: list[Result | Exception] = self._context.runJob(self._pairs, _Gathered(function), list(parts))
        return answers

    def shuffle(self, further: Further, spread: Spread[Item], items: Sequence[Item], parts: int) -> Shuffled:
        given = self._pairs.mapPartitionsWithIndex(_Further(further, self._parts))
        others = self._context.parallelize(items, max(1, len(items))).flatMap(spread)
        return _OnSpark(self._context, self._context.union([given, others]), parts)


class _Further:
    """What all parts but the one beyond them give to others."""

    def __init__(self, further: Further, parts: int) -> None:
        self.further, self.parts = further, parts

    def __call__(self, part: int, pairs: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        return self.further(_values(pairs)) if part < self.parts else ()


def _values(pairs: Iterable[tuple[int, bytes]]) -> Iterable[bytes]:
    return (value for _, value in pairs)


class _Gathered:
    """What becomes of a part, as the function of a job."""

    def __init__(self, function: Gather[Any]) -> None:
        self.function = function

    def __call__(self, pairs: Iterable[tuple[int, bytes]]) -> list[Any]:
        return [_Guarded(self._part)(pairs)]

    def _part(self, pairs: Iterable[tuple[int, bytes]]) -> Any:
        return self.function(0, _values(pairs))


class _Guarded:
    """A function that returns what it raises."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, item: Any) -> Any:
        try:
            return self.function(item)
        except Exception as failure:  # noqa: BLE001 - raised again on the driver
            return portable(failure)
