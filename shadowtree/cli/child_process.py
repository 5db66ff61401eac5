"""Run a program in our place: with our streams, our terminal and the signals that we get.

It stays in our process group, so that pipelines and job control are as they would be without us. What the
terminal sends, such as Ctrl-C, goes to the whole group: the program has it already. What a process sends to
us is passed on. We stop when the program stops, and go on when it does.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Mapping

_LEFT_ALONE = frozenset(
    getattr(signal, name)
    for name in ("SIGKILL", "SIGSTOP", "SIGTTIN", "SIGTTOU", "SIGCHLD", "SIGURG", "SIGWINCH", "SIGINFO")
    if hasattr(signal, name)
)
"""What nobody can hold back, and what ends nobody."""
_OF_THE_TERMINAL = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP})
"""What the kernel sends to a whole group; all else, such as the end of a timer, is for one process."""
PASSED_ON = frozenset(signal.valid_signals()) - _LEFT_ALONE
"""What the program is told too: all that would end us and leave it running, or stop it, or let it go on."""

_HELD = PASSED_ON | {signal.SIGCHLD}
_IGNORED_BY_PYTHON = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(signal, name)
)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""The exit codes of a shell that cannot run a program."""


class CannotRun(Exception):
    """The program is not there, or it cannot be run."""

    def __init__(self, name: str, error: OSError) -> None:
        is_missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        why = "command not found" if is_missing else error.strerror or str(error)
        self.exit_code = _NOT_FOUND if is_missing else _NOT_EXECUTABLE
        super().__init__(f"{name}: {why}")


class Relay:
    """While it is entered, signals are held back, so that nothing ends us before the program has ended.

    Only for a process without other threads: a signal goes to any thread that does not hold it back.
    """

    def __enter__(self) -> Relay:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
        # Our parent may have chosen to ignore it, and then the system would not report how the program ended.
        self._on_child = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        return self

    def __exit__(self, *exc: object) -> None:
        # What came since is answered: the program has ended.
        while late := signal.sigpending() & _HELD:
            signal.sigwait(late)
        signal.signal(signal.SIGCHLD, self._on_child)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def run(
        self, path: str, words: tuple[str, ...], environment: Mapping[str, str], *, output_fd: int = 1
    ) -> int:
        """Run the program to its end; return its exit code, or minus the signal that it died of.

        What it writes to its standard output goes to our descriptor `output_fd`.
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
    """Die of the signal that the program died of, so that our parent sees just that.

    Returns where that is not possible, such as in the first process of a container.
    """
    import resource

    sys.stdout.flush()
    sys.stderr.flush()
    # The program has left its core already, if it was to leave one.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _wait(pid: int) -> int:
    """Pass on signals until the program has ended, and give what the system says of its end."""
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
    """Wait for a signal; return whether it is to be passed on.

    The program has what the terminal sent, because that went to the whole group, and what it sent itself. But
    it may have left our group, as an interactive shell does, and then only we are told to go on.
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
    """Guess, where the system does not tell, whether a signal came from the terminal."""
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
    """Stop, because the program has, until we are continued.

    By the terminal's own signal: nothing happens then if nobody is there who could let us go on.
    """
    if signal.SIGCONT in signal.sigpending():
        # Both were stopped and both go on, only we were quicker.
        return
    # Sent while it is held back: one that is waiting already makes no second one.
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
