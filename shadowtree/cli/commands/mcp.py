"""The command that serves agents over the Model Context Protocol."""

from __future__ import annotations

from functools import partial

from shadowtree.base.errors import MissingExtra
from shadowtree.cli.app import command, flag
from shadowtree.cli.find_shadow import Shared, open_to_read, open_to_record


@command()
@flag("--allow-undo", help="Offer undo and revert too, which change files after a confirmation")
def mcp(shared: Shared, allow_undo: bool) -> None:
    """Serve the history to an agent, as an MCP server on standard input and output

    The agent can list what was recorded, compare states, read earlier versions of a file and save points.
    With --allow-undo it can also plan an undo or a revert, and carry out exactly that plan by its id.

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
    run_server(partial(open_to_read, shared), partial(open_to_record, shared), allows_undo=allow_undo)
