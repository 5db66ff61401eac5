"""The commands that tell what a store takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

import shadowtree
from shadowtree.cli.columns import GAP, align_right
from shadowtree.cli.command import Argument, Command, Option, Shared, read_count
from shadowtree.cli.output import paint, write_json, write_lines
from shadowtree.cli.render import render_stores
from shadowtree.cli.shadows import open_to_read, open_with_root, path_in_worktree
from shadowtree.cli.text import count, describe_age, describe_bytes, escape


def stats(shared: Shared, is_all: bool = False) -> int:
    if is_all:
        return _tell_all(shared)
    with open_to_read(shared) as shadow:
        found = shadow.stats()
    if shared.as_json:
        write_json(found.to_dict())
    else:
        write_lines(_render_stats(found, now_ms=time.time_ns() // 1_000_000))
    return 0


def _tell_all(shared: Shared) -> int:
    found = shadowtree.list_stores(os.environ)
    if shared.as_json:
        write_json([known.to_dict() for known in found])
    else:
        write_lines(render_stores(found, now_ms=time.time_ns() // 1_000_000))
    return 0


def du(shared: Shared, path: str | None = None, depth: str | None = None, by_session: bool = False) -> int:
    if by_session and (path is not None or depth is not None):
        raise shadowtree.InvalidInput("--by-session tells of the whole store, without PATH and --depth")
    if by_session:
        return _du_by_session(shared)
    levels = 1 if depth is None else read_count(depth, "--depth", at_least=0)
    with open_with_root(shared) as (root, shadow):
        usage = shadow.du(path_in_worktree(root, path or "."), depth=levels)
    if shared.as_json:
        write_json(usage.to_dict())
        return 0
    total = shadowtree.PathFigure(usage.path, usage.bytes, usage.versions)
    write_lines(_list_figures([(entry.bytes, _describe(entry)) for entry in (*usage.entries, total)]))
    return 0


def _du_by_session(shared: Shared) -> int:
    with open_to_read(shared) as shadow:
        figures = shadow.du_by_session()
    if shared.as_json:
        write_json([figure.to_dict() for figure in figures])
        return 0
    write_lines(_list_figures([(figure.bytes, _describe_session(figure)) for figure in figures]))
    return 0


def _render_stats(stats: shadowtree.Stats, *, now_ms: int) -> Iterator[str]:
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
        f"Objects {describe_bytes(stats.object_bytes)} in {count(stats.packs, 'pack')}, timeline "
        f"{describe_bytes(stats.timeline_bytes)}, cache {describe_bytes(stats.cache_bytes)}"
    )
    if stats.free_bytes:
        yield f"'shadowtree gc' would free {describe_bytes(stats.free_bytes)}"
    if stats.largest:
        yield "What takes most:"
        listed = _list_figures([(each.bytes, _describe(each)) for each in stats.largest])
        yield from (f"  {line}" for line in listed)


def _describe_budget(stats: shadowtree.Stats) -> str:
    taken = f"It takes {describe_bytes(stats.store_bytes)}"
    if stats.budget_bytes is None:
        return taken
    share = stats.store_bytes * 100 // stats.budget_bytes
    line = f"{taken} of {describe_bytes(stats.budget_bytes)}, {share} %"
    return paint("yellow", line) if share >= 80 else line


def _list_figures(figures: Sequence[tuple[int, str]]) -> list[str]:
    sizes = align_right([describe_bytes(size) for size, _ in figures])
    return [GAP.join((size, what)) for size, (_, what) in zip(sizes, figures, strict=True)]


def _describe(figure: shadowtree.PathFigure) -> str:
    return f"{escape(figure.path)} ({count(figure.versions, 'version')})"


def _describe_session(figure: shadowtree.SessionFigure) -> str:
    if figure.session is None:
        return "no session"
    return f"{escape(figure.session)} ({count(figure.messages, 'message')})"


STATS = Command(
    stats,
    options=(Option("--all", "is_all", "List all stores, the one that was used last first"),),
    help="""\
Tell what the store holds and what that takes

Bytes by kind, messages, trees and pins, the paths that take most, and what 'shadowtree gc' would free. With
--all every store, its worktree, when something was recorded there last, and whether the worktree is there.

\b
Examples:
  shadowtree stats
  shadowtree stats --all
""",
)

DU = Command(
    du,
    arguments=(Argument("path", is_required=False),),
    options=(
        Option("--depth", "depth", "Go down so many levels; 1 if it is not given", metavar="N"),
        Option("--by-session", "by_session", "Tell what each session alone needs"),
    ),
    help="""\
Tell what all recorded versions of PATH take, and of what is below it

The largest comes first, and the sum last. What is stored once counts once, where the newest tree has it; a
directory counts with its own listings.

\b
Examples:
  shadowtree du
  shadowtree du src --depth 2
  shadowtree du --by-session
""",
)
