"""The arguments of callers: names, the JSON of a message, paths."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree import Shadow
from shadowtree.base.arguments import check_name, encode_meta, parse_path, parse_paths
from shadowtree.base.errors import InvalidInput
from shadowtree.base.paths import ROOT, RelPath
from shadowtree.revert.requests import Options, read_options
from tests.support.trees import make_tree

if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict

# Names


@pytest.mark.parametrize(
    "name",
    [
        "x",
        " ",
        "a b",
        "x" * 256,
        "ü" * 256,
        "#7",
        "@",
        "-",
        "--all",
        "../..",
        "é\u0301",
        "👩‍👩‍👧",
        "\u00a0",
        "\u2028",
        "'\"\\",
    ],
)
def test_any_text_of_1_to_256_characters_is_a_name(name: str) -> None:
    assert check_name(name, "message id") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 257,
        "\0",
        "a\nb",
        "a\tb",
        "\r",
        "\x1b[31m",
        "\x7f",
        "\x80",
        "\x85",
        "\x9f",
        "\ud800",
        "a\udcff",
    ],
)
def test_what_is_no_text_is_no_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="step"):
        check_name(name, "step")


@pytest.mark.parametrize("name", ["\ud800", "a\udcff"], ids=ascii)
def test_a_name_that_is_no_utf8_is_refused_for_that_reason(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_name(name, "step")

    assert str(refused.value) == f"invalid step {name!r}: it is not valid UTF-8"


@pytest.mark.parametrize("name", [None, 7, b"bytes", ["a"], 1.5], ids=repr)
def test_what_is_not_even_text_is_no_name(name: object) -> None:
    with pytest.raises(InvalidInput):
        check_name(name, "session")  # type: ignore[arg-type]  # as a caller without types may pass it


# The options of an act


@pytest.mark.parametrize("word", ["abort", "keep", "overwrite", "merge"])
def test_there_are_four_ways_with_conflicts(word: OnConflict) -> None:
    assert read_options({"on_conflict": word}, "/w") == Options(word, markers=False)


@pytest.mark.parametrize("markers", [True, False], ids=["with markers", "without markers"])
@pytest.mark.parametrize("word", ["", "ABORT", "markers", "keep ", None])
def test_there_is_no_other_way_with_conflicts(word: OnConflict, markers: bool) -> None:
    with pytest.raises(InvalidInput, match="on_conflict"):
        read_options({"on_conflict": word, "markers": markers}, "/w")


@pytest.mark.parametrize("word", ["abort", "merge"])
def test_whoever_wants_markers_wants_to_merge(word: OnConflict) -> None:
    assert read_options({"on_conflict": word, "markers": True}, "/w") == Options("merge", markers=True)


@pytest.mark.parametrize("word", ["keep", "overwrite"])
def test_markers_are_refused_where_nothing_is_merged(word: OnConflict) -> None:
    with pytest.raises(InvalidInput, match=f"markers .*'{word}'"):
        read_options({"on_conflict": word, "markers": True}, "/w")


def test_an_act_stops_at_conflicts_unless_something_else_is_said() -> None:
    assert read_options({}, "/w") == Options() == Options("abort", markers=False)


# Meta


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"a": 1, "b": None, "c": [True, 1.5, "ü"], "d": {"e": {"f": []}}},
        {"": ""},
        {"lone": "\ud800"},
        {"large": 10**300},
        MappingProxyType({"a": 1}),
    ],
    ids=["empty", "nested", "empty key", "surrogate", "large", "another mapping"],
)
def test_a_json_object_comes_back_as_it_was(meta: Mapping[str, object]) -> None:
    text = encode_meta(meta)

    assert text is not None
    assert json.loads(text) == meta
    assert text.isascii()


def test_no_meta_is_no_object() -> None:
    assert encode_meta(None) is None


CIRCLE: dict[str, object] = {}
CIRCLE["self"] = CIRCLE
DEEP: dict[str, object] = {}
for _ in range(100_000):
    DEEP = {"d": DEEP}


@pytest.mark.parametrize(
    "meta",
    [
        {"a": float("nan")},
        {"a": [{"b": float("inf")}]},
        {"a": {1, 2}},
        {"a": b"bytes"},
        {"a": object()},
        {"a": Path("x")},
        {("t",): 1},
        CIRCLE,
        DEEP,
        [],
        [("a", 1)],
        "{}",
        7,
        True,
    ],
    ids=[
        "NaN",
        "infinity",
        "set",
        "bytes",
        "object",
        "path",
        "tuple as a key",
        "circle",
        "too deep",
        "list",
        "pairs",
        "text",
        "number",
        "bool",
    ],
)
def test_what_is_no_json_object_is_refused(meta: Mapping[str, object]) -> None:
    with pytest.raises(InvalidInput, match="meta"):
        encode_meta(meta)


# Paths

WORKTREE = "/home/me/project"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", b"a"),
        ("a/b", b"a/b"),
        ("a/", b"a"),
        ("a//b///", b"a/b"),
        ("./a/./b/.", b"a/b"),
        ("a/../b", b"b"),
        ("a/b/../../c", b"c"),
        (".", ROOT),
        ("./", ROOT),
        ("a/..", ROOT),
        ("..a", b"..a"),
        ("a..", b"a.."),
        ("...", b"..."),
        (" ", b" "),
        ("a\\b", b"a\\b"),
        ("ü", "ü".encode()),
        ("\udcff/x", b"\xff/x"),
        ("~/a", b"~/a"),
        ("-", b"-"),
        ("*", b"*"),
        ("/home/me/project", ROOT),
        ("/home/me/project/", ROOT),
        ("/home/me/project/a/b", b"a/b"),
        ("/home/me/project//a/", b"a"),
        ("/home/me/other/../project/a", b"a"),
        ("/home/me/project/../project/a", b"a"),
        (PurePosixPath("a/b"), b"a/b"),
        (Path("/home/me/project/a"), b"a"),
    ],
    ids=str,
)
def test_a_path_is_relative_to_the_worktree(path: str | os.PathLike[str], found: bytes) -> None:
    assert set(parse_paths([path], WORKTREE) or ()) == {RelPath(found)}
    assert parse_path(path, WORKTREE) == RelPath(found)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../a",
        "../project/a",
        "a/../..",
        "a/../../project/a",
        "./..",
        "/",
        "/etc/passwd",
        "/home/me",
        "/home/me/project-2/a",
        "/home/me/project/../a",
        "/home/me/projec",
    ],
)
def test_a_path_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="not in the worktree"):
        parse_paths(["fine", path], WORKTREE)


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "/home/me/project/a\0", "\ud800", "/\ud800"], ids=repr)
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        parse_paths([path], WORKTREE)


@pytest.mark.parametrize("paths", ["a/b", b"a/b", ""], ids=repr)
def test_a_bare_text_is_no_list_of_paths(paths: str) -> None:
    """A string would count as a list of letters, and the message would own none of its changes."""
    with pytest.raises(InvalidInput, match="list of paths"):
        parse_paths(paths, WORKTREE)


def test_no_paths_and_no_list_are_two_things() -> None:
    assert parse_paths(None, WORKTREE) is None
    assert parse_paths([], WORKTREE) == frozenset()
    assert parse_paths((), WORKTREE) == frozenset()


def test_an_absolute_path_may_lead_through_links(tmp_path: Path) -> None:
    """Agents report paths as they got them, while the worktree's own path is the real one."""
    worktree = tmp_path / "real"
    (worktree / "d").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (worktree / "d" / "out").symlink_to("/etc")

    paths = [tmp_path / "link", tmp_path / "link" / "a", tmp_path / "link" / "d" / "out"]
    assert set(parse_paths(paths, str(worktree)) or ()) == {ROOT, RelPath(b"a"), RelPath(b"d/out")}


def test_a_worktree_may_be_the_root_of_the_file_system() -> None:
    assert set(parse_paths(["/", "/etc", "usr/"], "/") or ()) == {ROOT, RelPath(b"etc"), RelPath(b"usr")}


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_any_text_is_a_path_in_the_worktree_or_refused(path: str) -> None:
    try:
        found = parse_paths([path], WORKTREE)
    except InvalidInput:
        return
    assert found is not None
    (relative,) = found
    names = relative.split(b"/") if relative else []

    assert not {b"", b".", b".."} & set(names)
    assert os.path.normpath(os.path.join(WORKTREE, os.fsdecode(relative))) == os.path.normpath(
        os.path.join(WORKTREE, path)
    )


# The same rules through `Shadow`


def test_a_path_elsewhere_ends_nothing(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    with pytest.raises(InvalidInput):
        shadow.end("m1", paths=["../elsewhere"])

    assert shadow.status().open == "m1"


def test_an_absolute_path_names_a_file_of_the_message(shadow: Shadow, worktree: Path) -> None:
    shadow.begin("m1")
    make_tree(worktree, {"s": {"mine": "1", "other": "1"}})
    message = shadow.end("m1", paths=[worktree / "s" / "mine"])

    assert [changed.path for changed in message.patch.files] == ["s/mine"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"worktree": b"."}, "a path must be a string or a Path, not b'.'"),
        ({"worktree": 3}, "a path must be a string or a Path, not 3"),
        ({"worktree": ""}, "'' is not a valid path"),
        ({"store": b"s"}, "a path must be a string or a Path, not b's'"),
        ({"store": ""}, "'' is not a valid path"),
        ({"settings": "x=1"}, "settings must be a mapping or Settings, not 'x=1'"),
        ({"settings": 3}, "settings must be a mapping or Settings, not 3"),
        ({"settings": []}, "settings must be a mapping or Settings, not []"),
    ],
    ids=str,
)
def test_a_shadow_is_not_made_from_wrong_arguments(
    worktree: Path, wrong: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        Shadow(**{"worktree": worktree, **wrong})

    assert str(refused.value) == sentence


@pytest.mark.parametrize("path", [b"a", 5, ""], ids=repr)
def test_a_file_is_not_read_at_what_is_no_path(shadow: Shadow, path: Any) -> None:
    with pytest.raises(InvalidInput, match="path"):
        shadow.read_file(shadow.track(), path)


@pytest.mark.parametrize("paths", [[b"n"], [3], 5], ids=repr)
def test_paths_of_another_type_end_nothing(shadow: Shadow, paths: Any) -> None:
    shadow.begin("m1")
    with pytest.raises(InvalidInput, match="path"):
        shadow.end("m1", paths=paths)

    assert shadow.status().open == "m1"


@pytest.mark.parametrize(
    ("id", "role", "meta"),
    [("", None, None), ("a\n", None, None), ("m", "", None), ("m", "x" * 257, None), ("m", None, {"a": {1}})],
    ids=["no id", "control character", "no role", "long role", "meta"],
)
def test_nothing_is_recorded_of_a_message_that_is_refused(
    shadow: Shadow, id: str, role: str | None, meta: dict[str, object] | None
) -> None:
    for record in (shadow.begin, shadow.snapshot):
        with pytest.raises(InvalidInput):
            record(id, role=role, meta=meta)

    assert not shadow.is_wrapped


@pytest.mark.parametrize("call", ["undo", "redo", "unrevert", "begin"])
def test_an_option_that_there_is_not_is_a_type_error(shadow: Shadow, call: str) -> None:
    arguments = ["m"] if call == "begin" else []

    with pytest.raises(TypeError, match="unexpected keyword argument 'on_conflicts'"):
        getattr(shadow, call)(*arguments, on_conflicts="keep")
