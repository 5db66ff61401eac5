"""Settings: how they are read from text and from values, and which values are refused."""

from __future__ import annotations

import pytest

from shadowtree import InvalidInput, Shadow
from shadowtree.config.settings import GIB, KIB, MIB, Given, Settings, read_config

SIZES = ["max_file_size", "max_files", "max_bytes", "min_free", "max_branches", "warn_branches"]


def settings_of(given: Given) -> Settings:
    """Return the settings for a caller's values, without any other source."""
    return read_config({}, given=given).read()


def test_without_anything_given_the_defaults_count() -> None:
    assert settings_of(None) == settings_of({}) == Settings()
    assert Settings().max_file_size == 10 * MIB
    assert Settings().lock_timeout == 10


def test_settings_given_as_such_are_taken_as_they_are() -> None:
    given = Settings(max_files=7)

    assert settings_of(given) == given


@pytest.mark.parametrize(
    ("given", "number"),
    [
        (0, 0),
        (7, 7),
        ("7", 7),
        (" 7 ", 7),
        ("1000", 1000),
        ("10B", 10),
        ("10k", 10 * KIB),
        ("10K", 10 * KIB),
        ("10KB", 10 * KIB),
        ("10KiB", 10 * KIB),
        ("10 KiB", 10 * KIB),
        ("10M", 10 * MIB),
        ("2 GiB", 2 * GIB),
        ("1T", 1024 * GIB),
        ("007", 7),
    ],
)
@pytest.mark.parametrize("key", SIZES)
def test_a_number_is_read(key: str, given: object, number: int) -> None:
    assert getattr(settings_of({key: given}), key) == number


@pytest.mark.parametrize(
    "given",
    [
        *[
            "",
            " ",
            "x",
            "-1",
            "+1",
            "1.5",
            "1e3",
            "1_000",
            "0x10",
            "10X",
            "10 K M",
            "KB",
            "M",
            "1 2",
            "\u00b2",
            "10KK",
            "10I",
            "10 iB",
        ],
        *[-1, 1.0, 1.5, True, False, None, [], (1,), b"1"],
        pytest.param("9" * 5000, id="5000 digits"),
    ],
)
@pytest.mark.parametrize("key", SIZES)
def test_what_is_no_number_is_refused(key: str, given: object) -> None:
    with pytest.raises(InvalidInput, match=key):
        settings_of({key: given})


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("1.5", 1.5),
        ("10", 10.0),
        ("1e1", 10.0),
        ("90s", 90.0),
        ("2h", 7200.0),
        ("30d", 2592000.0),
        (" 2w ", 1209600.0),
        ("1.5m", 90.0),
    ],
)
def test_seconds_are_read(given: object, seconds: float) -> None:
    assert settings_of({"lock_timeout": given}).lock_timeout == seconds


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        -1,
        "-0.1",
        "nan",
        "inf",
        float("inf"),
        float("nan"),
        None,
        True,
        [],
        "s",
        "1 y",
        "1e20d",
        10**400,
    ],
)
def test_what_are_no_seconds_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="lock_timeout"):
        settings_of({"lock_timeout": given})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("", ()),
        ("target", ("target",)),
        ("target,build", ("target", "build")),
        (" target , build ,", ("target", "build")),
        (["target", "my build"], ("target", "my build")),
        (("target",), ("target",)),
        ({"target"}, ("target",)),
        ([], ()),
        ("caf\u00e9", ("caf\u00e9",)),
    ],
)
def test_names_are_read(given: object, names: tuple[str, ...]) -> None:
    assert settings_of({"heavy_dirs": given}).heavy_dirs == names


@pytest.mark.parametrize(
    "given", ["a/b", "/a", "a/", ["a", "b/c"], 1, None, True, [1], ["a", None], b"a", {"a": 1}]
)
def test_what_are_no_names_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="heavy_dirs"):
        settings_of({"heavy_dirs": given})


@pytest.mark.parametrize("key", ["", "max-file-size", "MAX_FILES", "nothing", "of", "__class__"])
def test_a_setting_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="no setting named"):
        settings_of({key: "1"})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Settings().max_files = 1  # type: ignore[misc]  # this is refused


def test_a_shadow_refuses_bad_settings_before_it_does_anything(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    worktree = tmp_path_factory.mktemp("worktree")

    with pytest.raises(InvalidInput):
        Shadow(worktree, settings={"max_files": "many"})


@pytest.mark.parametrize("given", ["auto", "inotify", "watchfiles"])
def test_a_watcher_is_chosen(given: str) -> None:
    assert settings_of({"watcher": given}).watcher == given


@pytest.mark.parametrize("given", ["", "Inotify", "fsevents", 1, None, True, []])
def test_another_watcher_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="watcher must be one of auto, inotify, watchfiles"):
        settings_of({"watcher": given})
