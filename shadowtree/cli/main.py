"""The entry point of the command line: choose a parser, run, report errors, return the exit code.

Whatever happens, the user sees a result or one line, and no traceback unless SHADOWTREE_DEBUG is 1. Nothing
heavy is imported at the top, because every command pays for it: click is loaded only when `fast` does not
understand the words.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line, without the program's name, and return its exit code.

    Given `arguments`, this is part of another program, whose Ctrl-C works as before afterwards.
    """
    if arguments is None:
        return _run(sys.argv[1:])
    import signal
    from contextlib import suppress

    usual = signal.getsignal(signal.SIGINT)
    try:
        return _run(list(arguments))
    finally:
        with suppress(ValueError):  # not the main thread: nothing was changed here
            signal.signal(signal.SIGINT, usual)


def _run(words: list[str]) -> int:
    _reopen_closed_streams()
    if words[:1] == ["hook"] and not {"-h", "--help"} & {*words[1:2]}:
        from shadowtree.cli.hooks import hook

        return hook.run(words[1:])
    try:
        exit_code = _run_and_report(words)
        _flush()
        exit_code = _report_lost_output(exit_code)
    except KeyboardInterrupt as error:  # while the last output was written
        from shadowtree.cli.errors import report
        from shadowtree.cli.output import drop_output

        exit_code = report(error, as_json=False)
        drop_output()
    except OSError as error:  # the pipe is closed or the disk is full, so no message would arrive
        from shadowtree.cli.exit_codes import FAILED
        from shadowtree.cli.output import drop_output

        drop_output()
        return 0 if isinstance(error, BrokenPipeError) else FAILED
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


def _report_lost_output(exit_code: int) -> int:
    from shadowtree.cli.output import report_lost_output

    return report_lost_output(exit_code)


def _asks_for_json(words: list[str]) -> bool:
    """Search the words themselves, because the line may be one that no parser understands."""
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _reopen_closed_streams() -> None:
    """Reopen closed standard streams on /dev/null, or the next files opened would get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The system returns the lowest free descriptor, which is that of the stream.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
