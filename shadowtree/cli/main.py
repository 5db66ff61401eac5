"""Where a command line begins and ends: choose a parser, run, report what failed, give the exit code.

Whatever happens, a person sees a result or one line, never a traceback. Nothing heavy is imported up here,
because every command pays for it: click comes in only when `fast` does not understand the words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name, and return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _reopen_closed_streams()
    if words[:1] == ["hook"] and not {"-h", "--help"} & {*words[1:2]}:
        from shadowtree.cli.hooks import hook

        return hook.run(words[1:])
    try:
        exit_code = _run_and_report(words)
        _flush()
    except OSError as error:  # the reader of our output has gone, or its disk is full: nobody is left to tell
        from shadowtree.cli.output import drop_output

        drop_output()
        return 0 if isinstance(error, BrokenPipeError) else 1
    return exit_code


def _run_and_report(words: list[str]) -> int:
    from shadowtree.cli import fast

    call = None
    try:
        call = fast.parse(words)
        if call is not None:
            exit_code = fast.run(call)
        else:
            from shadowtree.cli import app

            exit_code = app.run(words)
        _flush()
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # the last stop before the user
        from shadowtree.cli.errors import report

        return report(error, as_json=_asks_for_json(words) if call is None else "as_json" in call.shared)
    return exit_code


def _flush() -> None:
    from shadowtree.cli.output import while_read

    with while_read():
        sys.stdout.flush()


def _asks_for_json(words: list[str]) -> bool:
    """Look at the words themselves: the line may be one that no parser understood."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _reopen_closed_streams() -> None:
    """Reopen a closed standard stream at its descriptor, or the next file opened would get that number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system hands out the lowest free number, which is that of the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
