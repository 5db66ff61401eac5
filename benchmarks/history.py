"""Messages one after the other, watched, in one process and without a pause between any two of them."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.measure import Effort
from benchmarks.ours import Ours
from benchmarks.report import Row, Targets, Unit, at_size

EDITS = 5
"""How many files a message of a long history edits."""
SERIES_PART = 0.4
"""A series has this share of the messages of a long history."""
SERIES_CHANGES = (10, 100)
MOST_MEDIANS, MOST_S = 3, 0.02
"""The longest that a message of a series may take: medians, or seconds if that is more."""
LISTED = 5
"""How many of the worst messages are listed."""
EARLY = "early message"
EARLY_TARGETS: Targets = {EARLY: {10_000: 1 / 1.2}}

_EARLY_MESSAGE, _AROUND, _MANY = 10, 5, 100
"""Which message is early, and how many are measured before and after it, or in all for the mean."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one message took."""

    begin_s: float
    end_s: float
    cpu_s: float
    """Processor time of both, all threads together; the rest was spent waiting, mostly for the disk."""
    collector_s: float = 0.0
    """The part of it that Python's garbage collector took. That depends on all objects of the process."""

    @property
    def seconds(self) -> float:
        """How long a host waited."""
        return self.begin_s + self.end_s


def measure_series(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure the worst of many messages: of few files each, which has a limit, and of many files each."""
    return [_measure_series(area, files, effort, changes) for changes in SERIES_CHANGES if changes <= files]


def measure_thousandth(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure messages at the beginning and at the end of a long history."""
    samples: dict[str, list[float]] = defaultdict(list)
    means: dict[str, list[float]] = defaultdict(list)
    for _ in range(effort.long_runs):
        recorded = record_edits(area, area.new_store(), effort.messages + _MANY // 2)
        seconds = [message.seconds for message in recorded]
        for name, number in ((OURS, effort.messages), (EARLY, _EARLY_MESSAGE)):
            samples[name] += seconds[max(0, number - _AROUND) : number + _AROUND]
            means[name].append(statistics.mean(seconds[max(0, number - _MANY // 2) :][:_MANY]))
    title = f"message {effort.messages:,} of {EDITS} edits, watched"
    targets = at_size(EARLY_TARGETS, files)
    return [
        Row(title, files, Unit.SECONDS, samples, targets),
        Row(f"{title}: mean of {_MANY}", files, Unit.SECONDS, means, targets),
    ]


def record_edits(area: Area, store: Path, messages: int) -> list[Recorded]:
    """Record a history of small edits in a new store."""
    return _record(area, store, messages, partial(area.edit_on, EDITS))


def list_worst(recorded: Sequence[Recorded]) -> str:
    """List the messages that took longest, counted from 1, and what took how long."""
    numbered = sorted(enumerate(recorded, start=1), key=lambda one: one[1].seconds, reverse=True)
    return "\n".join(
        f"  no. {number:,}: {Unit.SECONDS.show(message.seconds)} (begin {Unit.SECONDS.show(message.begin_s)},"
        f" end {Unit.SECONDS.show(message.end_s)}, processor {Unit.SECONDS.show(message.cpu_s)},"
        f" of it Python's garbage collector {Unit.SECONDS.show(message.collector_s)})"
        for number, message in numbered[:LISTED]
    )


def _measure_series(area: Area, files: int, effort: Effort, changes: int) -> Row:
    messages = max(1, round(SERIES_PART * effort.messages))
    recorded = _record(area, area.new_store(), messages, partial(area.change_on, changes))
    seconds = [message.seconds for message in recorded]
    has_limit = changes == SERIES_CHANGES[0]
    return Row(
        f"worst of {messages:,} messages, {changes:,} changed, watched",
        files,
        Unit.SECONDS,
        {OURS: seconds},
        limit=max(MOST_MEDIANS * statistics.median(seconds), MOST_S) if has_limit else None,
        note=list_worst(recorded),
    )


def _record(area: Area, store: Path, messages: int, change: Callable[[], None]) -> list[Recorded]:
    ours = Ours(area.folder, store, watch=True)
    ours.prime()
    os.sync()  # else the messages would pay for unwritten data of earlier work
    recorded = []
    with _clocked_collector() as collected:
        for _ in range(messages):
            start, start_cpu, before = time.perf_counter(), time.process_time(), sum(collected)
            ours.begin_message()
            begun, begun_cpu, between = time.perf_counter(), time.process_time(), sum(collected)
            change()
            changed, changed_cpu, after = time.perf_counter(), time.process_time(), sum(collected)
            ours.end_message()
            ended, ended_cpu = time.perf_counter(), time.process_time()
            cpu_s = ended_cpu - changed_cpu + begun_cpu - start_cpu
            collector_s = sum(collected) - after + between - before
            recorded.append(Recorded(begun - start, ended - changed, cpu_s, collector_s))
    ours.close()
    return recorded


@contextmanager
def _clocked_collector() -> Iterator[list[float]]:
    """Yield a list to which each run of Python's garbage collector adds how long it took."""
    taken, starts = list[float](), list[float]()

    def note(phase: str, facts: dict[str, int]) -> None:
        del facts
        if phase == "start":
            starts.append(time.perf_counter())
        else:
            taken.append(time.perf_counter() - starts.pop())

    gc.callbacks.append(note)
    try:
        yield taken
    finally:
        gc.callbacks.remove(note)
