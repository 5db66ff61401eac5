"""The commands of the README print what it says; `python -m tests.project.test_readme` writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.processes import surroundings

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"(?<=```console\n).*?(?=```)", README.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_commands_of_the_readme_print_what_it_says(block: str, tmp_path: Path) -> None:
    assert run_block(block, tmp_path) == block, "run python -m tests.project.test_readme"


def run_block(block: str, directory: Path) -> str:
    """Run the commands of a block in an empty directory, and give them with what they print."""
    project, programs = directory / "shop", directory / "bin"
    project.mkdir()
    programs.mkdir()
    (programs / "shadowtree").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shadowtree "$@"\n')
    (programs / "shadowtree").chmod(0o755)
    home = str(directory / "home")
    environment = surroundings(PATH=f"{programs}:{os.environ['PATH']}", SHADOWTREE_HOME=home)
    lines: list[str] = []
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=project,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        lines += [f"$ {command}", *_settle(done.stdout, project, home).splitlines()]
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())


def _settle(text: str, project: Path, home: str) -> str:
    """Replace what differs from run to run: where things are, and how long ago they were."""
    text = text.replace(str(project), "/home/ana/shop").replace(home, "/home/ana/.local/share/shadowtree")
    text = re.sub(r"shop-[0-9a-f]{12}", "shop-549df1e2e63b", text)
    return re.sub(r"\b\d+ s\b", "1 s", text)


if __name__ == "__main__":
    for written in BLOCKS:
        with tempfile.TemporaryDirectory() as scratch:
            made = run_block(written, Path(scratch).resolve())
        README.write_text(README.read_text("utf-8").replace(written, made), "utf-8")
