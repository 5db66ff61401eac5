"""The commands that record the worktree."""

from __future__ import annotations

import shadowtree
from shadowtree.cli.command import Argument, Command, Option, Shared
from shadowtree.cli.output import warn, write_json, write_lines
from shadowtree.cli.progress import ProgressBar
from shadowtree.cli.shadows import open_shadow, open_to_record, telling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def track(shared: Shared) -> int:
    with open_to_record(shared) as shadow, ProgressBar("Reading files") as bar:
        snapshot = shadow.take_snapshot(progress=bar)
    if shared.as_json:
        write_json(snapshot.to_dict())
        return 0
    write_lines([snapshot.tree])
    _tell_warnings(snapshot)
    if snapshot.skipped:
        from shadowtree.cli.render import summarise_skipped

        warn(f"not protected: {summarise_skipped(snapshot.skipped)}; 'shadowtree status' tells all")
    return 0


def wrap(shared: Shared, directory: str | None = None, adopt: str | None = None) -> int:
    with _open_to_wrap(shared, directory or ".", adopt) as shadow, ProgressBar("Reading files") as bar:
        snapshot = shadow.wrap(progress=bar)
        worktree, store = str(shadow.worktree), str(shadow.store)
    if shared.as_json:
        write_json({"worktree": worktree, "store": store, **snapshot.to_dict()})
        return 0
    from shadowtree.cli.render import render_wrap

    write_lines(render_wrap(worktree, store, snapshot))
    _tell_warnings(snapshot)
    return 0


def _open_to_wrap(
    shared: Shared, directory: str, adopt: str | None
) -> AbstractContextManager[shadowtree.Shadow]:
    if adopt is None:
        return open_shadow(shared, directory)
    if shared.store is not None:
        raise shadowtree.InvalidInput("--adopt names the store already, --store cannot be given too")
    return telling(
        shadowtree.Shadow.adopt(
            directory,
            adopt,
            session=shared.session,
            settings=shared.settings,
            allow_broad=shared.allow_broad,
        )
    )


def _tell_warnings(snapshot: shadowtree.Snapshot) -> None:
    for warning in snapshot.warnings:
        warn(warning)


WRAP = Command(
    wrap,
    arguments=(Argument("directory", is_required=False),),
    options=(Option("--adopt", "adopt", "Go on with STORE, whose worktree was moved here", metavar="STORE"),),
    help="""\
Start protecting DIRECTORY, by default the current one

Makes the store, outside of the directory, and takes the first snapshot. Nothing is written into the
directory itself. Done again, it takes one more snapshot.

\b
Examples:
  shadowtree wrap
  shadowtree wrap ~/notes
  shadowtree wrap ~/new/place --adopt ~/.local/share/shadowtree/place-0123456789ab
""",
)

TRACK = Command(
    track,
    help="""\
Record the worktree as one tree and print its id

The first time it wraps the current directory. Nothing changed since: the same id.

\b
Examples:
  shadowtree track
  before=$(shadowtree track); ./agent; shadowtree patch "$before"
""",
)
