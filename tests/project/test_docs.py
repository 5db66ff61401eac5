"""What the documents promise is there: commands, options, links, code."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from shadowtree.cli.app import COMMANDS, cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
RECORDS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

# A word right after the name of the program; placeholders are in capitals, and options have a dash.
_CALL = re.compile(r"(?:^|[$(`/ ])shadowtree (?:-C \S+ )?(?!import\b)([a-z]+)\b", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def _flags(command: click.Command) -> set[str]:
    actions = command.commands.values() if isinstance(command, click.Group) else ()
    own = {flag for parameter in command.params for flag in parameter.opts}
    return own.union(*map(_flags, actions))


def _called(text: str) -> set[str]:
    """Find the commands in code: in blocks, and between back-ticks."""
    code = "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))
    return set(_CALL.findall(code))


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_every_command_in_a_document_exists(path: Path) -> None:
    assert _called(path.read_text("utf-8")) <= COMMANDS.keys()


def test_every_command_is_in_the_readme() -> None:
    assert _called(README) == COMMANDS.keys()


def test_every_option_of_ours_in_the_readme_exists() -> None:
    context = click.Context(cli)
    known = {"--help"} | _flags(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        known |= _flags(command)
    lines = [line for line in README.splitlines() if "--git" not in line and "tox" not in line]

    assert set(_FLAG.findall("\n".join(lines))) <= known


def test_the_readme_tells_every_exit_code_of_today() -> None:
    from shadowtree.cli.errors import ANSWERS

    today = {answer.exit_code for answer in ANSWERS.values()}
    listed = re.search(r"Exit\s+codes: ([^.]*)\.", README)

    assert listed is not None
    assert {0, 130, *today} == {int(code) for code in re.findall(r"\d+", listed[1])}


def test_the_readme_has_the_two_commands() -> None:
    run, test = (block.strip() for block in _code("sh"))

    assert run.endswith("shadowtree wrap .")
    assert test.endswith("tox")
    for command in (run, test):
        assert "\n" not in command, "one line sets up and does it"


def test_the_continuous_run_is_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    lines = [line for line in script.read_text("utf-8").splitlines() if line and not line.startswith("#")]

    assert os.access(script, os.X_OK)
    assert lines[-1] == _code("sh")[-1].strip()
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_the_python_of_the_readme_runs(worktree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (worktree / "file").write_text("old\n")
    (code,) = _code("python")
    code = code.replace("path/to/project", str(worktree))

    def run_agent() -> None:
        (worktree / "file").write_text("new\n")

    exec(compile(code, "README.md", "exec"), {"run_agent": run_agent})

    assert capsys.readouterr().out == "modified file\n['file'] [] []\n"


@pytest.mark.parametrize("path", DOCUMENTS, ids=_name)
def test_every_link_leads_somewhere(path: Path) -> None:
    broken = [
        link for link in _LINK.findall(path.read_text("utf-8")) if not (path.parent / link.strip()).exists()
    ]

    assert not broken


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_decision_is_listed_and_has_its_four_parts(record: Path) -> None:
    listed = (record.parent / "README.md").read_text("utf-8")
    text = record.read_text("utf-8")

    assert f"({record.name})" in listed
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == [
        "Context",
        "Decision",
        "Alternatives",
        "Consequences",
    ]


def test_each_decision_has_a_number_of_its_own_and_they_are_linked_from_the_readme() -> None:
    assert len({record.name[:4] for record in RECORDS}) == len(RECORDS)
    assert "(docs/decisions/README.md)" in README


def test_the_sources_name_only_decisions_that_exist() -> None:
    sources = [*(ROOT / "shadowtree").rglob("*.py"), ROOT / "pyproject.toml"]
    named = {
        name
        for path in sources
        for name in re.findall(r"docs/decisions/[\w.-]+\.md", path.read_text("utf-8"))
    }

    assert named <= {_name(record) for record in RECORDS}


def test_every_package_is_in_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    missing = [
        path.parent.name
        for path in (ROOT / "shadowtree").glob("*/__init__.py")
        if f"`{path.parent.name}/`" not in text
    ]

    assert not missing


def test_the_glossary_explains_each_word_once_and_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    words = re.findall(r"^\| ([^|]+) \| ", text.partition("|---|---|\n")[2], re.MULTILINE)

    assert 60 <= len(words) <= 80, "the words that users or most modules meet"
    assert words == sorted(set(words))


def test_the_project_names_its_readme_and_ships_its_documents() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

    assert project["project"]["readme"] == "README.md"
    shipped = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/docs", "/tests", "/tox.ini", "/CHANGELOG.md"} <= set(shipped)
