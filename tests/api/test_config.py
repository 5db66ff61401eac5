"""Settings from every source: which one counts, what is reported, and what a project may not set."""

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path

import pytest

from shadowtree import AsyncShadow, InvalidInput, Settings, Shadow
from shadowtree.config.settings import PROJECT_SETTINGS, Config, read_config, set_setting
from shadowtree.system.locations import Places
from tests.support.daemons import daemon, serve_kept
from tests.support.sweeps import Faults
from tests.support.terminal import Terminal
from tests.support.trees import make_tree

KEYS = list(Settings.__match_args__)


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    """The user's file in its usual place; only the directory exists."""
    path = tmp_path / "home" / ".config" / "shadowtree" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


# Which source counts


def test_the_nearest_source_decides(worktree: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(given: dict[str, object] | None = None) -> tuple[object, str, str | None]:
        setting = read_config(os.environ, str(worktree), given).get("max_file_size")
        return setting.value, setting.origin, setting.file

    assert found() == (10 << 20, "default", None)
    user_file.write_text("max_file_size = 1\n")
    assert found() == (1, "user", str(user_file))
    (worktree / "pyproject.toml").write_text("[tool.shadowtree]\nmax_file_size = 2\n")
    assert found() == (2, "project", str(worktree / "pyproject.toml"))
    (worktree / ".shadowtree.toml").write_text("max_file_size = '3K'\n")
    assert found() == (3 << 10, "project", str(worktree / ".shadowtree.toml"))
    monkeypatch.setenv("SHADOWTREE_MAX_FILE_SIZE", "4M")
    assert found() == (4 << 20, "environment", None)
    assert found({"max_file_size": "5"}) == (5, "flag", None)


def _value_of(key: str, names: str) -> str:
    """Return a valid value: most settings are numbers, some are names, switches or a choice."""
    if key == "watcher":
        return "watchfiles"
    if isinstance(getattr(Settings(), key), str):
        return "origin"
    if isinstance(getattr(Settings(), key), bool):
        return "false"
    return names if isinstance(getattr(Settings(), key), tuple) else "7"


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_has_all_sources(
    key: str, worktree: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = _value_of(key, "7,8")
    set_setting(os.environ, key, value)
    assert read_config(os.environ).get(key).origin == "user"

    monkeypatch.setenv(f"SHADOWTREE_{key.upper()}", value)
    assert read_config(os.environ).get(key).origin == "environment"
    assert Shadow(worktree).settings == read_config({}, given={key: value}).read()


def test_the_users_file_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, file in (
        ("XDG_CONFIG_HOME", "x/shadowtree/config.toml"),
        ("SHADOWTREE_CONFIG", "mine.toml"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / file.partition("/")[0]))

        assert set_setting(os.environ, "max_files", "7") == str(tmp_path / file)
        assert read_config(os.environ).get("max_files").file == str(tmp_path / file)


def test_settings_given_whole_leave_nothing_to_files(worktree: Path, user_file: Path) -> None:
    user_file.write_text("broken\n")

    assert Shadow(worktree, settings=Settings(max_files=7)).settings == Settings(max_files=7)


def test_empty_variables_set_nothing_and_others_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that looks like a setting but is none is listed as unknown."""
    monkeypatch.setenv("SHADOWTREE_MAX_FILES", "")
    monkeypatch.setenv("SHADOWTREE_MAX_FLIES", "x")
    config = read_config(os.environ)

    assert config.read() == Settings()
    assert "SHADOWTREE_MAX_FLIES" in config.unknown_variables


# Mistakes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# a\nmax_files = 'many'\n", "line 2: max_files must be"),
        ("max_flies = 1\n", "line 1: no setting named 'max_flies'"),
        ("max_files = 1.5\n", "line 1: max_files must be"),
        ("lock_timeout = 1979-05-27\n", "line 1: lock_timeout must be"),
        ("heavy_dirs = ['a/b']\n", "line 1: heavy_dirs takes"),
        ("store = '/tmp'\n", "line 1: no setting named 'store'"),
        ("max_files = 1\nmax_files = 2\n", "line 2: max_files is set"),
        ("[tool.shadowtree]\nmax_files = 1\n", "line 1: this file cannot have sections"),
        ("max_files", "line 1: "),
        ("\xff", "it is not UTF-8"),
        ("#" * 10000, "larger than"),
    ],
)
def test_what_is_wrong_in_the_users_file_is_an_error_that_names_it(
    text: str, sentence: str, worktree: Path, user_file: Path
) -> None:
    user_file.write_bytes(text.encode("latin-1"))

    with pytest.raises(InvalidInput) as caught:
        Shadow(worktree)

    assert str(caught.value).startswith(str(user_file))
    assert sentence in str(caught.value)


def test_what_is_no_file_is_not_read(user_file: Path) -> None:
    os.mkfifo(user_file)

    with pytest.raises(InvalidInput, match="it is not a file"):
        read_config(os.environ).read()


def test_a_bad_variable_is_named(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWTREE_MAX_FILES", "many")

    with pytest.raises(InvalidInput, match=r"^SHADOWTREE_MAX_FILES: max_files must be"):
        Shadow(worktree)


@pytest.mark.parametrize("key", sorted(set(KEYS) - PROJECT_SETTINGS))
@pytest.mark.parametrize("name", [".shadowtree.toml", "pyproject.toml"])
def test_a_project_may_set_only_what_of_it_is_covered(key: str, name: str, worktree: Path) -> None:
    value = _value_of(key, "['7']")
    value = value if value[0] in "[7" else f"'{value}'"
    section = "[tool.shadowtree]\n" if name == "pyproject.toml" else ""
    (worktree / name).write_text(f"{section}{key} = {value}\nmax_file_size = 9\n")
    config = read_config(os.environ, str(worktree))

    assert config.read() == Settings(max_file_size=9)
    (warning,) = config.warnings
    assert f"a project cannot set {key}" in warning
    assert f"{name}, line {2 if section else 1}" in warning


@pytest.mark.parametrize(
    "text",
    [
        "max_file_size = 'huge'\n",
        "store = '/tmp/elsewhere'\n",
        "on_end = 'rm -rf ~'\n",
        "broken",
        "[a]\n",
        "x = " + "[" * 4000,
        "a" + ".a" * 3000 + " = 1",
        "\xff",
        "#" * 10000,
    ],
    ids=range(9),
)
def test_a_broken_file_of_a_project_stops_nothing(text: str, worktree: Path) -> None:
    """An agent may write such a file in a message, which must be recorded and undone like any other."""
    make_tree(worktree, {"a": "1"})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.begin("m1")
        (worktree / ".shadowtree.toml").write_bytes(text.encode("latin-1"))
        message = shadow.end()
        shadow.undo()

        assert not (worktree / ".shadowtree.toml").exists()
        (warning,) = message.warnings
        assert str(worktree / ".shadowtree.toml") in warning
        assert shadow.take_snapshot().warnings == []


def test_a_link_is_no_file_of_a_project(worktree: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.toml").write_text("max_file_size = 1\n")
    (worktree / ".shadowtree.toml").symlink_to(tmp_path / "outside.toml")

    assert read_config(os.environ, str(worktree)).read() == Settings()


# A shadow and its files


@pytest.mark.parametrize("is_watched", [False, True], ids=["plain", "watched"])
def test_what_is_set_counts_from_the_next_record_on(worktree: Path, is_watched: bool) -> None:
    make_tree(worktree, {"a": "12345", "target": {"b": "1"}})
    with Shadow(worktree, watch=is_watched, settings={"min_free": 0}) as shadow:
        assert shadow.take_snapshot().files == 2
        (worktree / ".shadowtree.toml").write_text("heavy_dirs = ['target']\n")
        assert shadow.take_snapshot().files == 2
        (worktree / ".shadowtree.toml").write_text("max_file_size = 2\n")
        (worktree / "c").write_text("123")
        assert [each.path for each in shadow.take_snapshot().skipped] == ["c"]
        (worktree / ".shadowtree.toml").unlink()
        assert shadow.take_snapshot().files == 3


def test_what_the_user_sets_counts_for_a_shadow_that_is_open(worktree: Path, user_file: Path) -> None:
    make_tree(worktree, {"a": "12345"})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.track()
        user_file.write_text("max_file_size = 2\n")
        (worktree / "b").write_text("123")

        assert [each.path for each in shadow.take_snapshot().skipped] == ["b"]
        assert shadow.settings.max_file_size == AsyncShadow(worktree).settings.max_file_size == 2


def test_a_change_that_leaves_size_and_times_is_seen(worktree: Path) -> None:
    file = worktree / ".shadowtree.toml"
    config = read_config(os.environ, str(worktree))
    for number in range(1, 10):
        file.write_text(f"max_file_size = {number}\n")

        assert config.read().max_file_size == number


def test_a_file_of_the_project_that_the_disk_does_not_give_is_said_to_not_count(worktree: Path) -> None:
    (worktree / "pyproject.toml").write_text("[tool.shadowtree]\nmax_file_size = 1\n")
    outcomes = set()

    for number in range(1, 10):
        config = Config(Places(os.environ), str(worktree))
        with Faults(number, errno.EIO, reading=True) as faults:
            settings = config.read()
        outcomes.add((bool(faults.hits), settings.max_file_size == 1, bool(config.warnings)))

    assert (True, False, True) in outcomes
    assert (True, False, False) not in outcomes


def test_a_file_that_is_old_is_not_read_again(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (worktree / ".shadowtree.toml").write_text("max_file_size = 1\n")
    config = Config(Places(os.environ), str(worktree), clock_ns=lambda: time.time_ns() + 10**11)
    config.read()
    monkeypatch.setattr("shadowtree.config.settings.read_small_file", lambda *_: pytest.fail("it was read"))

    assert config.read().max_file_size == 1


def test_status_tells_what_in_a_projects_file_does_not_count(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "1", ".shadowtree.toml": "keep_last = 1\n"})
    shadow.track()

    (warning,) = shadow.status().warnings
    assert "a project cannot set keep_last" in warning


def test_the_daemon_sees_what_is_set(terminal: Terminal, project: Path) -> None:
    with daemon():
        serve_kept(project)
        terminal.run("config", "set", "max_file_size", "2")
        (project / "c.txt").write_text("123\n")

        assert terminal.run_json("track")["skipped"][0]["path"] == "c.txt"
        assert terminal.run_json("watch", "status")["worktrees"][0]["requests"] == 1

        (project / ".shadowtree.toml").write_text("max_file_size = 2\nmin_free = 0\n")
        (warning,) = terminal.run_json("track")["warnings"]
        assert "a project cannot set min_free" in warning
        assert terminal.run_json("watch", "status")["worktrees"][0]["requests"] == 2


def test_a_command_with_settings_of_its_own_does_without_the_daemon(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon():
        serve_kept(project)
        (project / "c.txt").write_text("123\n")
        monkeypatch.setenv("SHADOWTREE_MAX_FILE_SIZE", "2")
        assert terminal.run_json("track")["skipped"][0]["path"] == "c.txt"

        monkeypatch.delenv("SHADOWTREE_MAX_FILE_SIZE")
        assert terminal.run_json("track")["skipped"] == []
        assert terminal.run_json("watch", "status")["worktrees"][0]["requests"] == 1


# The command


def test_list_gives_the_documented_json(terminal: Terminal, user_file: Path) -> None:
    user_file.write_text('heavy_dirs = ["target"]\n')

    found = {each["key"]: each for each in terminal.run_json("config", "list", "--set", "max_files=7")}

    assert list(found) == KEYS
    assert found["max_files"] == {"key": "max_files", "value": 7, "origin": "flag", "file": None}
    assert found["heavy_dirs"] == {
        "key": "heavy_dirs",
        "value": ["target"],
        "origin": "user",
        "file": str(user_file),
    }
    assert found["min_free"]["origin"] == "default"


def test_list_aligns_values_and_origins(terminal: Terminal, project: Path) -> None:
    (project / ".shadowtree.toml").write_text("max_file_size = 3072\nmin_free = 0\n")

    lines = terminal.run("config").splitlines()

    assert terminal.run("config", "list").splitlines() == lines
    assert [line.split()[0] for line in lines] == KEYS
    assert lines[0].split() == ["max_file_size", "3K", "project:", str(project / ".shadowtree.toml")]
    assert lines[KEYS.index("lock_timeout")].split() == ["lock_timeout", "10s", "default"]
    assert "a project cannot set min_free" in terminal.err


def test_documented_variables_cause_no_warning(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [*Path(__file__).parents[2].glob("docs/*.md"), Path(__file__).parents[2] / "README.md"]
    documented = {
        name for page in pages for name in re.findall(r"\bSHADOWTREE_[A-Z_]+", page.read_text("utf-8"))
    }
    for name in documented - {"SHADOWTREE_STORE", "SHADOWTREE_MAX_FILE_SIZE", "SHADOWTREE_COMPLETE"}:
        monkeypatch.setenv(name, os.environ.get(name, "1"))

    terminal.run("config", "list")

    assert terminal.err == ""


def test_switches_are_shown_as_people_write_them(terminal: Terminal) -> None:
    assert terminal.run("config", "get", "store_prompts") == "true\n"
    assert terminal.run("config", "get", "push_text") == "false\n"


def test_get_prints_the_value_alone(terminal: Terminal) -> None:
    assert terminal.run("config", "get", "max_file_size") == "10M\n"
    assert terminal.run("config", "get", "max_files") == "1000000\n"
    assert terminal.run_json("config", "get", "max_files")["value"] == 1_000_000
    terminal.run("config", "get", "nothing", exit_code=2)
    assert "no setting named 'nothing'" in terminal.err


def test_set_keeps_the_other_lines_and_unset_takes_its_own(terminal: Terminal, user_file: Path) -> None:
    user_file.write_text("# mine\nmax_files = 5\n")

    terminal.run("config", "set", "max_file_size", "20M")
    terminal.run("config", "set", "heavy_dirs", "target, build")
    assert user_file.read_text() == (
        '# mine\nmax_files = 5\nmax_file_size = "20M"\nheavy_dirs = ["target", "build"]\n'
    )
    assert terminal.run_json("config", "unset", "max_files")["origin"] == "default"
    terminal.run("config", "unset", "heavy_dirs")

    assert user_file.read_text() == '# mine\nmax_file_size = "20M"\n'
    assert terminal.run("config", "get", "max_file_size") == "20M\n"


def test_set_makes_the_file_for_its_owner_alone(terminal: Terminal, tmp_path: Path) -> None:
    terminal.run("config", "set", "max_files", "5")

    path = tmp_path / "home" / ".config" / "shadowtree" / "config.toml"
    assert path.read_text() == "max_files = 5\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["config.toml"]


def test_set_writes_through_a_link(terminal: Terminal, user_file: Path, tmp_path: Path) -> None:
    (tmp_path / "dotfile").write_text("# mine\n")
    user_file.symlink_to(tmp_path / "dotfile")

    terminal.run("config", "set", "max_files", "5")

    assert user_file.is_symlink()
    assert (tmp_path / "dotfile").read_text() == "# mine\nmax_files = 5\n"


def test_set_refuses_what_cannot_be_meant(terminal: Terminal, user_file: Path) -> None:
    terminal.run("config", "set", "max_files", "many", exit_code=2)
    terminal.run("config", "set", "nothing", "1", exit_code=2)
    assert not user_file.exists()

    user_file.write_text("broken\n")
    terminal.run("config", "set", "max_files", "5", exit_code=2)
    assert f"{user_file}, line 1" in terminal.err
    assert user_file.read_text() == "broken\n"


def test_a_bad_value_can_be_mended_by_the_command(terminal: Terminal, user_file: Path) -> None:
    user_file.write_text("max_files = 'many'\nmax_flies = 1\n")

    terminal.run("config", "list", exit_code=2)
    terminal.run("config", "set", "max_files", "5")
    terminal.run("config", "unset", "max_flies")

    assert terminal.run("config", "get", "max_files") == "5\n"


def test_unset_of_what_is_no_setting_and_not_in_the_file_is_wrong_usage(
    terminal: Terminal, user_file: Path
) -> None:
    user_file.write_text("max_files = 5\n")

    terminal.run("config", "unset", "nothing", exit_code=2)
    assert "no setting named 'nothing'" in terminal.err
    terminal.run("config", "unset", "max_branches")
    assert user_file.read_text() == "max_files = 5\n"


def test_get_tells_what_of_the_projects_files_does_not_count(terminal: Terminal, project: Path) -> None:
    (project / ".shadowtree.toml").write_text("max_file_size = 'much'\n")

    assert terminal.run("config", "get", "max_file_size") == "10M\n"
    assert "; this is ignored" in terminal.err


def test_set_tells_when_something_else_decides(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWTREE_MAX_FILES", "7")

    assert json.loads(terminal.run("config", "set", "max_files", "5", "--json"))["value"] == 7
    assert "max_files is still 7 here, from the environment" in terminal.err
