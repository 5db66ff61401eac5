"""The content and size of stores, what was removed, and whether a store is sound, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from shadowtree.base.errors import describe_size
from shadowtree.cli.format import LISTED, count, describe_age, escape, join_rows, list_first
from shadowtree.cli.output import paint
from shadowtree.results import reports

_ADOPT = "was only moved, run 'shadowtree wrap' there first."
NEARLY_FULL = 80
"""From this percentage of its budget on, the size of a store is shown in yellow."""
_MORE = "  and {:,} more"
_NAMED_HURT = 5
"""How many of the messages that a problem hurts are named with it; all are listed at the end."""


# Content and size


def render_stats(stats: reports.Stats, *, now_ms: int) -> Iterator[str]:
    """Report what a store holds, how much space that takes, and its budget."""
    yield f"The store of {escape(stats.worktree)} is {escape(stats.store)}"
    yield _describe_budget(stats)
    yield (
        f"{count(stats.messages, 'message')} in {count(stats.sessions, 'session')}, "
        f"{count(stats.trees, 'tree')}, {count(stats.pins, 'pin')}"
    )
    if stats.oldest_ms is not None and stats.newest_ms is not None:
        oldest, newest = (describe_age(now_ms - each) for each in (stats.oldest_ms, stats.newest_ms))
        yield f"The oldest message is {oldest} old, the newest {newest}"
    yield (
        f"Objects {describe_size(stats.object_bytes)} in {count(stats.packs, 'pack')}, timeline "
        f"{describe_size(stats.timeline_bytes)}, cache {describe_size(stats.cache_bytes)}"
    )
    if stats.free_bytes:
        yield f"'shadowtree gc' would free {describe_size(stats.free_bytes)}"
    if stats.largest:
        yield "Largest paths:"
        yield from (f"  {line}" for line in list_figures(stats.largest))


def _describe_budget(stats: reports.Stats) -> str:
    taken = f"It uses {describe_size(stats.store_bytes)}"
    if stats.budget_bytes is None:
        return taken
    share = stats.store_bytes * 100 // stats.budget_bytes
    line = f"{taken} of its {describe_size(stats.budget_bytes)} budget ({share}%)"
    return paint("yellow", line) if share >= NEARLY_FULL else line


def list_figures(figures: Sequence[reports.PathFigure | reports.SessionFigure]) -> list[str]:
    """Return a row for each path or session, with its size."""
    return join_rows([(describe_size(figure.bytes), _name_figure(figure)) for figure in figures], "><")


def _name_figure(figure: reports.PathFigure | reports.SessionFigure) -> str:
    if isinstance(figure, reports.PathFigure):
        return f"{escape(figure.path)} ({count(figure.versions, 'version')})"
    if figure.session is None:
        return "no session"
    return f"{escape(figure.session)} ({count(figure.messages, 'message')})"


def render_stores(stores: Sequence[reports.KnownStore], *, now_ms: int) -> Iterator[str]:
    """Yield a row for each store, and their sum."""
    if not stores:
        yield "No stores"
        return
    rows = []
    for known in stores:
        size = describe_size(known.bytes) if known.is_trusted else "?"
        age = "?" if known.used_ms is None else describe_age(now_ms - known.used_ms)
        rows.append((size, age, _describe_store(known)))
    yield from join_rows(rows, ">><")
    unseen = sum(not known.is_trusted for known in stores)
    but = f"; {unseen:,} could not be read" if unseen else ""
    yield f"{count(len(stores), 'store')}, {describe_size(sum(known.bytes for known in stores))}{but}"


def _describe_store(known: reports.KnownStore) -> str:
    """Name a worktree, and also its store unless the worktree is still there."""
    if known.state == "there" and known.worktree is not None:
        return escape(known.worktree)
    where = f"{escape(known.worktree or 'unknown')} ({escape(known.store)})"
    if known.is_orphan:
        return paint("yellow", f"{where}: gone; to remove it, run 'shadowtree gc --orphans'")
    return f"{where}: {known.state}, {escape(known.doubt or '')}"


# What was removed


def ask_to_destroy(known: reports.KnownStore, folder: str) -> Iterator[str]:
    """Ask for the folder's name, and warn if the worktree is gone or was replaced."""
    yield f"This will {describe_destroying(known)}."
    if known.state == "replaced":
        yield f"Another directory is there now and will not be changed. If the old one {_ADOPT}"
    if known.state == "gone":
        yield f"The directory is gone. If it {_ADOPT}"
    yield f"To confirm, type the folder name, {escape(folder)}:"


def ask_to_destroy_all(stores: Sequence[reports.KnownStore]) -> Iterator[str]:
    """Ask the user to type a word before all stores are removed."""
    yield from (f"  {_describe_store(known)}" for known in stores)
    size = describe_size(sum(known.bytes for known in stores))
    yield f"This will permanently remove {count(len(stores), 'store')} ({size})."
    yield "To confirm, type all:"


def render_destroyed(removal: reports.Removal) -> Iterator[str]:
    """List the stores that were removed, or would be, and those that stay."""
    would_be = "Would be removed" if removal.dry_run else "Removed"
    yield from (f"{would_be}: {escape(store)}" for store in removal.removed)
    yield from (f"Not removed: {escape(known.store)}: {escape(known.doubt or '')}" for known in removal.kept)
    if not removal.removed and not removal.kept:
        yield "No stores"


def describe_destroying(known: reports.KnownStore) -> str:
    """Say what is about to be removed."""
    number = "an unknown number of messages" if known.messages is None else count(known.messages, "message")
    where = f"for {escape(known.worktree)}" if known.worktree else f"in {escape(known.store)}"
    return f"permanently remove everything recorded {where} ({number}, {describe_size(known.bytes)})"


def name_store(known: reports.KnownStore) -> str:
    """Name a store by its worktree if that is known, else by its own path."""
    return f"the store of {escape(known.worktree)}" if known.worktree else f"the store {escape(known.store)}"


def describe_orphans(orphans: Sequence[reports.KnownStore]) -> str:
    """Ask whether the stores of vanished worktrees may be removed."""
    size = describe_size(sum(known.bytes for known in orphans))
    names = ", ".join(escape(known.worktree or known.store) for known in orphans)
    return (
        f"This will permanently remove everything recorded for {names} ({size}).\nIf one {_ADOPT}\nContinue?"
    )


def render_removal(removal: reports.Removal) -> Iterator[str]:
    """List the stores that were removed, and those that were not."""
    would = "would be removed" if removal.dry_run else "removed"
    for store in removal.removed:
        yield f"{would}  {escape(store)}"
    for known in removal.kept:
        yield f"kept  {escape(known.worktree or known.store)}: {escape(known.doubt or '')}"
    if removal.removed:
        yield f"{count(len(removal.removed), 'store')} {would}, {describe_size(removal.freed)}"
        if removal.dry_run:
            yield f"If one {_ADOPT}"
    else:
        yield "No stores removed"


def render_swept(found: Sequence[reports.SweptStore], *, dry_run: bool) -> Iterator[str]:
    """Yield a row for each store with what was freed in it, and the sum."""
    would = "would free" if dry_run else "freed"
    for each in found:
        name = escape(each.worktree or each.store)
        if each.swept is None:
            yield f"skipped  {name}: {escape(each.reason or '')}"
        else:
            yield f"{would} {describe_size(each.swept.freed)}  {name}"
    total = sum(each.swept.freed for each in found if each.swept is not None)
    yield f"{describe_freed(total, dry_run=dry_run)} in {count(len(found), 'store')}"


def describe_freed(number: int, *, dry_run: bool) -> str:
    """Say how much was freed, or would be."""
    return f"{'Would free' if dry_run else 'Freed'} {describe_size(number)}"


def render_forgotten(found: reports.Forgotten) -> Iterator[str]:
    """List what is forgotten, or would be."""
    verb = "Would forget" if found.dry_run else "Forgot"
    if not found.messages and not found.trees:
        yield "Nothing to forget"
    else:
        yield f"{verb} {count(len(found.messages), 'message')} and {count(found.trees, 'tree')}"
    yield from list_first(
        found.messages, lambda each: f"  {escape(each[1])}  (session {escape(each[0])})", _MORE
    )
    if found.freed:
        yield f"Freed {describe_size(found.freed)}"


def describe_purge(planned: reports.Purged) -> str:
    """Say what is about to be purged, in one line."""
    named = ", ".join(escape(path) for path in planned.paths[:LISTED])
    more = f" and {len(planned.paths) - LISTED:,} more" if len(planned.paths) > LISTED else ""
    told = (
        f"This will permanently remove {named or 'it'}{more} from {count(planned.trees, 'tree')} and"
        f" {count(len(planned.messages), 'message')}; undo cannot bring it back"
    )
    if planned.also_at:
        told += f". {_describe_also_at(planned)}"
    return told


def render_purged(purged: reports.Purged) -> Iterator[str]:
    """List what was purged, and what was not."""
    purged_is = "Would be purged" if purged.dry_run else "Purged"
    yield from list_first(purged.paths, lambda path: f"{purged_is}: {escape(path)}", _MORE)
    if purged.trees or purged.blobs:
        yield (
            f"{count(len(purged.blobs), 'file version')} in {count(purged.trees, 'tree')} and"
            f" {count(len(purged.messages), 'message')}"
        )
    if purged.freed:
        yield f"Freed {describe_size(purged.freed)}"
    yield from list_first(purged.also_at, lambda path: f"{escape(path)} has the same content", _MORE)
    for blob in purged.left[:LISTED] if not purged.dry_run else ():
        yield f"To remove it everywhere: shadowtree purge {blob}"
    yield from map(escape, purged.notes)
    for name in purged.remotes:
        command = f"shadowtree push {quote(name)} --replace"
        yield f"Remote {escape(name)} may still have it. To replace what you pushed there: {escape(command)}"


def list_left_of_purge(purged: reports.Purged) -> Iterator[str]:
    """Say why the bytes are still in the store, or may be."""
    if purged.also_at:
        yield _describe_also_at(purged)
    if purged.unread:
        versions = count(len(purged.unread), "file version")
        yield f"{versions} could not be read, so messages may still repeat parts of it"
    if purged.names:
        names = count(len(purged.names), "message or session name")
        yield f"{names} still {_contain(purged.names)} part of it"


def _describe_also_at(purged: reports.Purged) -> str:
    """Say how many other paths still have the content."""
    return f"{count(len(purged.also_at), 'other path')} still {_contain(purged.also_at)} this content"


def _contain(things: Sequence[str]) -> str:
    return "contains" if len(things) == 1 else "contain"


# Whether it is sound


def render_check(
    report: reports.CheckReport, worktree: str, store: str, *, has_repaired: bool
) -> Iterator[str]:
    """List what was repaired, what is damaged, which messages that hurts, and what the user can try."""
    for sentence in report.repaired:
        yield f"{paint('cyan', 'planned' if report.dry_run else 'repaired')}  {escape(sentence)}"
    if report.quarantine is not None:
        yield f"The original files are kept in {escape(report.quarantine)}"
    for problem in report.problems:
        yield f"{paint('red', 'damaged')}  {escape(problem.message)}{_name_hurt(problem.messages)}"
    for problem in report.harmless:
        yield f"{paint('dim', 'harmless')}  {escape(problem.message)}"
    checked = f"{count(report.trees, 'tree')} checked, {count(report.objects, 'object')} read"
    if report.ok:
        yield f"No problems found: {checked}"
        return
    yield f"{count(len(report.problems), 'problem')} found: {checked}"
    if report.hurt:
        yield "These messages can no longer be restored completely:"
        yield from (f"  {escape(hurt.id)} in session {escape(hurt.session)}" for hurt in report.hurt)
    adopting = f"shadowtree wrap {quote(worktree)} --adopt {quote(store)}"
    yield from _advise(report, adopting, has_repaired=has_repaired)


def _name_hurt(messages: list[reports.HurtMessage]) -> str:
    if not messages:
        return ""
    named = ", ".join(escape(hurt.id) for hurt in messages[:_NAMED_HURT])
    more = len(messages) - _NAMED_HURT
    return f"; affects {named}" + (f" and {count(more, 'more message')}" if more > 0 else "")


def _advise(report: reports.CheckReport, adopting: str, *, has_repaired: bool) -> Iterator[str]:
    """Say what the user can try; after a repair, not the same repair again."""
    if not has_repaired:
        if not report.dry_run:
            yield "To repair what can be repaired, keeping the original files: shadowtree check --repair"
    elif report.hurt:
        yield "To forget them: shadowtree check --repair --forget-lost"
    elif any(problem.kind == "identity" for problem in report.problems):
        yield f"If the store belongs to this directory, run: {escape(adopting)}"
    else:
        yield "The rest could not be repaired"
