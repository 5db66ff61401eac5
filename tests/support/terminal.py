"""Command lines as a person types them: in this process, or on a terminal of their own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from click.testing import CliRunner

from shadowtree.cli.main import main
from tests.support.processes import COMMAND, surroundings


class Program:
    """The whole program, as click's runner wants to call it: the fast parser first, then click."""

    name = "shadowtree"

    def main(self, args: Sequence[str], prog_name: str, **_: object) -> None:
        sys.exit(main(args))


class Terminal:
    """Run command lines in this process, without a terminal, and keep what they print."""

    def __init__(self) -> None:
        self._runner = CliRunner()
        self.err = ""

    def run(self, *words: str, exit_code: int = 0, variables: Mapping[str, str] | None = None) -> str:
        """Run a line that ends with `exit_code`, and return its standard output."""
        program: Any = Program()  # Any: it has what a click.Command is called by
        result = self._runner.invoke(program, words, env=variables)
        self.err = result.stderr
        assert result.exit_code == exit_code, (result.stdout, result.stderr)
        return result.stdout_bytes.decode("utf-8", "surrogateescape")

    def run_json(self, *words: str, exit_code: int = 0) -> Any:  # Any: JSON
        """Run a line with `--json`, and return the document."""
        return json.loads(self.run("--json", *words, exit_code=exit_code))


def run_on_terminal(*words: str, term: str = "dumb", answer: str = "", exit_code: int = 0) -> bytes:
    """Run a line in another process, on a terminal of its own, and return everything that appears there.

    `term` is the kind of terminal. The answer is typed ahead, and waits until the command reads it.
    """
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *words], stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": term}
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b"".join(_read_until_hangup(ours))
        os.close(ours)
        assert process.wait() == exit_code, shown
    return shown


def _read_until_hangup(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # EIO: the other side has closed the terminal
            return
        if not part:
            return
        yield part


class Shell:
    """An interactive shell on a terminal of its own, with job control."""

    def __init__(self, directory: Path) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            variables = {**surroundings(), "TERM": "dumb", "PS1": "$ ", "HISTFILE": "", "PS0": ""}
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], variables)
        self._shown = b""

    def type(self, text: str) -> None:
        """Type a text; a line ends with a line break."""
        os.write(self._terminal, text.encode())

    def wait_for(self, sign: str, timeout_s: float = 60) -> str:
        """Read until `sign` appears, and return everything up to its end."""
        wanted = sign.encode()
        deadline = monotonic() + timeout_s
        while wanted not in self._shown:
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - monotonic()))
            assert ready, f"{sign!r} does not appear: {self._shown!r}"
            self._shown += os.read(self._terminal, 65536)
        before, _, self._shown = self._shown.partition(wanted)
        return (before + wanted).decode()

    def close(self) -> None:
        """Hang up, and wait until the shell is gone."""
        os.close(self._terminal)
        os.waitpid(self._pid, 0)
