"""What the documents promise is there: commands, options, links, code."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest

import shadowtree
from shadowtree import Settings
from shadowtree.cli.app import COMMANDS, cli
from shadowtree.config.settings import read_setting

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RECORDS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))

# A word right after the name of the program; placeholders are in capitals, and options have a dash. In the
# transcripts of agents, `shadowtree protects` is what a hook tells.
_CALL = re.compile(r"(?:^|[$(`/ ])shadowtree (?:-C \S+ )?(?!import\b|protects\b)([a-z]+)\b", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _code(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def _read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


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
    table = README.partition("\n## Commands\n")[2].partition("\n\n`")[0]

    assert set(re.findall(r"`([a-z]+)`", table)) == COMMANDS.keys()


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_every_option_of_ours_in_the_readme_exists() -> None:
    context = click.Context(cli, **cli.context_settings)
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


def test_the_python_of_the_readme_is_that_of_the_library_page() -> None:
    assert _code("python") == _code("python", _read("docs/library.md"))[:1]


def _run_code(code: str) -> dict[str, Any]:  # Any: whatever the code defines
    names: dict[str, Any] = {}
    exec(compile(code, "a document", "exec"), names)
    return names


def test_the_agent_of_the_library_page_undoes_and_redoes(
    worktree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code, _) = _code("python", _read("docs/library.md"))
    assert len(code.splitlines()) <= 25
    conversations: list[list[str]] = []

    def answer(prompts: list[str]) -> None:
        conversations.append(prompts)
        (worktree / "notes").write_text("\n".join(prompts))

    chat = _run_code(code)["chat"]
    chat(worktree, ["one", "two", "/undo"], answer)
    after_undo = (worktree / "notes").read_text()
    chat(worktree, ["/redo", "/undo", "three"], answer)
    (worktree / "notes").write_text("mine")
    chat(worktree, ["/undo"], answer)

    assert conversations == [["one"], ["one", "two"], ["one", "three"]]
    assert after_undo == "one"
    assert capsys.readouterr().out.splitlines() == [
        "Restored ['notes'] and deleted []",
        "Restored ['notes'] and deleted []",
        "Restored ['notes'] and deleted []",
        "Nothing changed, because you edited notes",
    ]


def test_the_coroutines_of_the_library_page_run(worktree: Path) -> None:
    (_, code) = _code("python", _read("docs/library.md"))

    async def run_agent() -> None:
        (worktree / "file").write_text("new")

    outcome = asyncio.run(_run_code(code)["work"](worktree, run_agent))

    assert outcome.deleted == ["file"]


def test_the_settings_page_lists_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \| \S", _read("docs/settings.md"), re.MULTILINE)
    listed = {key: read_setting(key, default) for key, default in rows}

    assert listed == {key: getattr(Settings(), key) for key in Settings.__match_args__}
    assert list(listed) == list(Settings.__match_args__)


def test_the_workflow_runs_the_continuous_run_on_every_python_that_is_named() -> None:
    workflow = _read(".github/workflows/tests.yml")
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    environments = re.findall(r"py3(\d+)", _read("tox.ini").partition("env_list")[2].partition("\n")[0])

    assert re.search(r"- run: (.*)", workflow)[1] == ".ci/run"  # type: ignore[index]  # it is there
    assert re.findall(r'"(3\.\d+)"', workflow) == named == [f"3.{each}" for each in environments]
    assert re.search(r"os: (.*)", workflow)[1] == "[ubuntu-latest, macos-latest]"  # type: ignore[index]  # as above


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads(_read("pyproject.toml"))

    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "shadowtree/__init__.py"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", shadowtree.__version__)
    sources = (ROOT / "shadowtree").rglob("*.py")
    told = [path for path in sources if shadowtree.__version__ in path.read_text()]
    assert told == [ROOT / "shadowtree" / "__init__.py"]


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
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode or not (ROOT / ".git").exists():
        pytest.skip("only a repository tells what belongs to it")
    # All of it, or the tests of a source distribution would miss something.
    tracked = {f"/{name.partition('/')[0]}" for name in listed.stdout.split("\0") if name}
    assert set(shipped) == tracked - {"/.gitignore", "/LICENSE", "/README.md", "/pyproject.toml"}


def test_pictures_are_small_and_shown() -> None:
    pictures = sorted((ROOT / "docs" / "screenshots").iterdir())
    shown = README + _read("docs/ui.md")

    assert pictures
    for picture in pictures:
        assert picture.stat().st_size < 150_000, picture.name
        assert f"screenshots/{picture.name}" in shown, picture.name
