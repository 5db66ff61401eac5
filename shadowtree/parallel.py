"""Do independent jobs in a few threads, with a bound on what waits in memory.

Worth it where most of the time is spent without the interpreter's lock: reading, hashing, deflating.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Job = TypeVar("Job")
    Result = TypeVar("Result")

_AHEAD = 4
"""How many jobs per thread are handed out before a result is taken."""


def run_jobs(work: Callable[[Job], Result], jobs: Iterable[Job], threads: int) -> Iterator[Result]:
    """Give the result of every job, in any order; what a job raises is raised here, once."""
    waiting = iter(jobs)
    first = list(islice(waiting, 2))
    if threads < 2 or len(first) < 2:
        for job in first:
            yield work(job)
        for job in waiting:
            yield work(job)
        return
    yield from _run_threads(work, first, waiting, threads)


def _run_threads(
    work: Callable[[Job], Result], first: list[Job], waiting: Iterator[Job], threads: int
) -> Iterator[Result]:
    from queue import SimpleQueue
    from threading import Thread

    todo: SimpleQueue[Job | None] = SimpleQueue()
    done: SimpleQueue[tuple[Result | None, BaseException | None]] = SimpleQueue()

    def serve() -> None:
        while (job := todo.get()) is not None:
            try:
                done.put((work(job), None))
            except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
                done.put((None, error))

    crew = [Thread(target=serve, name="shadowtree-reader", daemon=True) for _ in range(threads)]
    for thread in crew:
        thread.start()
    try:
        running = 0
        for job in first:
            todo.put(job)
            running += 1
        while running:
            for job in islice(waiting, threads * _AHEAD - running):
                todo.put(job)
                running += 1
            result, error = done.get()
            running -= 1
            if error is not None:
                raise error
            yield result  # type: ignore[misc]  # without an error there is a result
    finally:
        for _ in crew:
            todo.put(None)
        for thread in crew:
            thread.join()
