"""The command that serves the local page."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack, suppress
from threading import Event, Thread

import click

from shadowtree.base.errors import ShadowError, describe
from shadowtree.cli.app import command, flag
from shadowtree.cli.find_shadow import Shared, find_wrapped, open_shadow
from shadowtree.cli.output import is_quiet, say, write_json, write_lines, writes_json
from shadowtree.system.locations import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree import Shadow
    from shadowtree.web.server import Server

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


@command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Listen on this port; by default a free one"
)
@flag("--no-open", help="Print the address, without opening a browser")
@flag("--read-only", help="Show everything, and refuse to change anything")
def ui(shared: Shared, port: int, no_open: bool, read_only: bool) -> int:
    """Show the timeline in your browser

    Serves a page on this machine only, until you press Ctrl-C. The address holds a token: whoever has it can
    undo and restore files here, so do not pass it on. The same routes are open to programs; see docs/http.md.

    \b
    Examples:
      shadowtree ui
      shadowtree ui --read-only
      shadowtree ui --port 8765 --no-open
    """
    from shadowtree.web.server import Server

    with open_shadow(shared, find_wrapped(shared)) as shadow:
        shadow.only_wrapped()
        try:
            server = Server(shadow, port=port, session=shared.session, read_only=read_only)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on port {port}: {describe(error)}") from error
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Ctrl-C is the normal end, not a failure.
        with server, suppress(KeyboardInterrupt), ExitStack() as while_serving:
            _tell(server, shadow)
            if not no_open and _has_display():
                _open_browser(server.url, while_serving)
            Event().wait()
    return 0


def _tell(server: Server, shadow: Shadow) -> None:
    """Print the address, and on standard error how to stop."""
    if writes_json():
        told = {"url": server.url, "port": server.port, "token": server.token, "pid": os.getpid()}
        write_json(told)
    else:
        write_lines([server.url])
    sys.stdout.flush()
    if not writes_json() and not is_quiet():
        say(f"serving {shadow.worktree} until you press Ctrl-C")


def _has_display() -> bool:
    """Check that a browser can be shown here: not in CI, and not over SSH."""
    environment = os.environ
    if environment.get("CI") or environment.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or any(environment.get(name) for name in _DISPLAYS)


def _open_browser(url: str, while_serving: ExitStack) -> None:
    """Open a private file that redirects to the address: other users can read the browser's command line.

    It is opened in a thread, because some browsers return only when they are closed.
    """
    import webbrowser

    from shadowtree.web.redirect import redirect_file

    stores = Places(os.environ).stores
    if stores is None:
        return  # There is no private place for the file. The address is printed.
    try:
        file = while_serving.enter_context(redirect_file(url, stores))
    except ShadowError as error:
        say(f"no browser is opened: {error}")
        return

    def open_it() -> None:
        with suppress(webbrowser.Error, OSError):  # The address is printed.
            webbrowser.open(file)

    Thread(target=open_it, daemon=True).start()
