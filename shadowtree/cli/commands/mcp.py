"""The command that serves agents over the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from shadowtree import Shadow
from shadowtree.base.errors import MissingExtra
from shadowtree.cli.app import command, flag
from shadowtree.cli.find_shadow import Shared, find_to_record, open_shadow


@command()
@flag("--allow-undo", help="Offer undo and revert too, which change files after a confirmation")
def mcp(shared: Shared, allow_undo: bool) -> None:
    """Serve the history to an agent over MCP

    Agents talk to it on standard input and output. They can list what was recorded, compare states, read
    earlier versions of a file and save points. With --allow-undo they can also plan an undo or a revert, and
    carry out exactly that plan by its id.

    Needs the extra 'mcp': pip install 'shadowtree[mcp]'

    \b
    Examples:
      shadowtree mcp
      claude mcp add shadowtree -- shadowtree mcp
      shadowtree mcp --allow-undo
    """
    try:
        from shadowtree.mcp.server import run_server
    except ImportError as error:
        raise MissingExtra("mcp") from error
    run_server(partial(_open, shared), allows_undo=allow_undo)


@contextmanager
def _open(shared: Shared) -> Iterator[Shadow]:
    """Open the shadow for one call, in the given session, or else in the one that recorded last."""
    with open_shadow(shared, find_to_record(shared)) as shadow:
        yield shadow if shared.session is not None else shadow.for_last_session()
