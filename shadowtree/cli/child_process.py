"""Run a program in our place: with our streams, our terminal and the signals sent to us.

It stays in our process group, so pipelines and job control work as they would without us. Signals of the
terminal, such as Ctrl-C, go to the whole group, so the program has them already. Signals that a process sends
to us are passed on. We stop when the program stops, and continue when it continues.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping

from shadowtree.cli.exit_codes import CANNOT_EXECUTE, COMMAND_NOT_FOUND

_LEFT_ALONE = frozenset(
    getattr(signal, name)
    for name in ("SIGKILL", "SIGSTOP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGURG", "SIGWINCH", "SIGINFO")
    if hasattr(signal, name)
)
"""Signals that cannot be blocked, or that do not end a process."""
_OF_THE_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
"""Signals that the kernel sends to a whole group; others, such as the end of a timer, are for one process."""
PASSED_ON = frozenset(signal.valid_signals()) - _LEFT_ALONE
"""Signals for the program too: those that would end us and leave it running, or that stop or continue it."""

_HELD = PASSED_ON | {signal.SIGCHLD}
_IGNORED_BY_PYTHON = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)
)


class CannotRun(Exception):
    """The program does not exist, or it cannot be run."""

    def __init__(self, name: str, error: OSError) -> None:
        is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why = "command not found" if is_missing else error.strerror or str(error)
        self.exit_code = COMMAND_NOT_FOUND if is_missing else CANNOT_EXECUTE
        super().__init__(f"{name}: {why}")


class Relay:
    """A context in which signals are blocked, so that nothing ends us before the program has ended.

    Only for a process without other threads: a signal goes to any thread that does not block it.
    """

    def __enter__(self) -> Relay:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        # If our parent ignores SIGCHLD, we inherit that, and could not learn how the program ended.
        self._on_child = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(self, *exc: object) -> None:
        # Discard the signals that came since: the program has ended.
        while late := signal.sigpending() & _HELD:
            signal.sigwait(late)
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def run(
        self, path: str, words: tuple[str, ...], environment: Mapping[str, str], *, output_fd: int = 1
    ) -> int:
        """Run the program to its end; return its exit code, or minus the number of the signal that killed it.

        Its standard output goes to our descriptor `output_fd`.
        """
        actions = [] if output_fd == 1 else [(os.POSIX_SPAWN_DUP2, output_fd, 1)]
        try:
            pid = os.posix_spawn(
                path,
                words,
                environment,
                file_actions=actions,
                setsigmask=self._mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )
        except OSError as error:
            raise CannotRun(words[0], error) from error
        return os.waitstatus_to_exitcode(_wait(pid))


def find_program(name: str, search: str) -> str:
    """Find a program by its path, or by its name in the directories of `search`, as a shell does."""
    failure: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    directories = [""] if "/" in name else [directory or "." for directory in search.split(os.pathsep)]
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        if os.path.exists(path):
            failure = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    raise CannotRun(name, failure)


def die_of(number: int) -> None:
    """Die of the signal that killed the program, so that our parent sees the same.

    Return if that is not possible, such as in the first process of a container.
    """
    import resource

    sys.stdout.flush()
    sys.stderr.flush()
    # The program has already dumped its core, if it was to dump one.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _wait(pid: int) -> int:
    """Pass on signals until the program has ended; return its wait status."""
    while True:
        number, is_for_us_alone = _next_signal(pid)
        if number != signal.SIGCHLD:
            if is_for_us_alone:
                os.kill(pid, number)
            continue
        changed, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if changed and os.WIFSTOPPED(status):
            _stop_too()
        elif changed:
            return status


def _next_signal(pid: int) -> tuple[int, bool]:
    """Wait for a signal; return it, and whether to pass it on.

    The program already has signals of the terminal, which go to the whole group, and needs none that it sent
    itself. But it may have left our group, as an interactive shell does, and then only we receive SIGCONT.
    """
    if sys.platform == "darwin":
        number = signal.sigwait(_HELD)
        return number, number not in _OF_THE_TERMINAL or not _is_in_foreground()
    said = signal.sigwaitinfo(_HELD)
    if said.si_code > 0:
        return said.si_signo, said.si_signo not in _OF_THE_TERMINAL
    is_to_go_on = said.si_signo == signal.SIGCONT
    return said.si_signo, is_to_go_on or said.si_pid != pid


def _is_in_foreground() -> bool:
    """Guess whether a signal came from the terminal, where the system does not report it."""
    try:
        fd = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def _stop_too() -> None:
    """Stop, because the program has stopped, until we are continued.

    SIGTSTP, as from the terminal, has no effect in an orphaned process group, where nobody could continue us.
    """
    if signal.SIGCONT in signal.sigpending():
        # Both of us were stopped and continued, only we were quicker.
        return
    # Sent while it is blocked, so that one that is already pending does not stop us a second time.
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
