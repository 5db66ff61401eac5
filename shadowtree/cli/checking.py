"""The command that looks whether a store is sound, and repairs it."""

from __future__ import annotations

import shadowtree
from shadowtree.cli.command import Command, Option, Shared
from shadowtree.cli.output import paint, say, write_json, write_lines
from shadowtree.cli.progress import ProgressBar
from shadowtree.cli.shadows import find_wrapped, open_shadow
from shadowtree.cli.text import count, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_OK = 15
"""The exit code of a check that found something wrong."""
_LISTED = 5
"""How many messages are named of those that one problem hurts; all are at the end."""


def check(
    shared: Shared,
    reads_data: bool = False,
    repairs: bool = False,
    forget_lost: bool = False,
    dry_run: bool = False,
) -> int:
    if (dry_run or forget_lost) and not repairs:
        flag = "--dry-run" if dry_run else "--forget-lost"
        raise shadowtree.InvalidInput(f"{flag} goes with --repair; a check changes nothing")
    with open_shadow(shared, find_wrapped(shared)) as shadow, ProgressBar("Reading objects") as bar:
        if repairs:
            report = shadow.repair(dry_run=dry_run, forget_lost=forget_lost, progress=bar)
        else:
            report = shadow.check(read_data=reads_data, progress=bar)
    if shared.as_json:
        write_json(report.to_dict())
    else:
        write_lines(_render(report, has_repaired=repairs and not dry_run))
    if report.ok:
        return 0
    say(f"the store is damaged: {count(len(report.problems), 'problem')}")
    return NOT_OK


def _render(report: shadowtree.CheckReport, *, has_repaired: bool) -> Iterator[str]:
    for sentence in report.repaired:
        yield f"{paint('cyan', 'would do' if report.dry_run else 'repaired')}  {escape(sentence)}"
    if report.quarantine is not None:
        yield f"What was changed is kept as it was in {escape(report.quarantine)}"
    for problem in report.problems:
        yield f"{paint('red', 'damaged')}  {escape(problem.message)}{_name_hurt(problem.messages)}"
    for problem in report.harmless:
        yield f"{paint('dim', 'harmless')}  {escape(problem.message)}"
    yield from _sum_up(report)
    if not report.ok:
        yield from _advise(report, has_repaired=has_repaired)


def _name_hurt(messages: list[shadowtree.HurtMessage]) -> str:
    if not messages:
        return ""
    named = ", ".join(escape(hurt.id) for hurt in messages[:_LISTED])
    more = len(messages) - _LISTED
    return f"; it hurts {named}" + (f" and {count(more, 'more message')}" if more > 0 else "")


def _sum_up(report: shadowtree.CheckReport) -> Iterator[str]:
    looked = f"{count(report.trees, 'tree')} walked, {count(report.objects, 'object')} read"
    if report.ok:
        yield f"The store is sound: {looked}"
        return
    yield f"{count(len(report.problems), 'problem')}: {looked}"
    if report.hurt:
        yield "These messages cannot be relied on any more:"
        yield from (f"  {escape(hurt.id)} in session {escape(hurt.session)}" for hurt in report.hurt)


def _advise(report: shadowtree.CheckReport, *, has_repaired: bool) -> Iterator[str]:
    """Say what can be tried; after a repair that is not the same once more."""
    if not has_repaired:
        if not report.dry_run:
            yield "Try 'shadowtree check --repair', which heals what it can and keeps what it changes"
    elif report.hurt:
        yield "Try 'shadowtree check --repair --forget-lost', which forgets them"
    elif any(problem.kind == "identity" for problem in report.problems):
        yield "Try 'shadowtree wrap --adopt STORE' if the store belongs to this directory"
    else:
        yield "What is left could not be repaired"


CHECK = Command(
    check,
    options=(
        Option("--read-data", "reads_data", "Read and hash every object, not only what names it"),
        Option("--repair", "repairs", "Make good what can be, and say what cannot"),
        Option(
            "--forget-lost", "forget_lost", "With --repair: forget the messages that need what stays lost"
        ),
        Option("--dry-run", "dry_run", "Only say what a repair would do"),
    ),
    help="""\
Look whether the store holds what was put there

It looks at the timeline, at all trees that it names, at packs, permissions and leftovers, and names every
message that is hurt by what is damaged; then the exit code is 15. Nothing is changed.

A repair first copies what it changes into the directory 'quarantine' of the store. What is lost is taken from
other copies, or from the worktree as far as the content is still there.

\b
Examples:
  shadowtree check
  shadowtree check --read-data
  shadowtree check --repair --dry-run
""",
)
