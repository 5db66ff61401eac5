"""Settings files as text: which statements are read, with their lines, and what an edit leaves unchanged."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.base.errors import InvalidInput
from shadowtree.config.settings_file import BadLine, drop, put, read_section, read_statements

TABLE = ("tool", "shadowtree")

TEXT = """\
# mine
max_files = 5  # few

heavy_dirs = [
    "target",  # rust
    "x#y",
]
lock_timeout = 2.5
"""


def _read(text: str) -> dict[str, object]:
    return {statement.key: statement.value for statement in read_statements(text)}


def _read_pyproject(text: str) -> dict[str, object]:
    return {statement.key: statement.value for statement in read_section(text, TABLE)}


def test_keys_are_read_with_their_lines() -> None:
    found = read_statements(TEXT)

    assert [(each.key, each.first, each.end) for each in found] == [
        ("max_files", 1, 2),
        ("heavy_dirs", 3, 7),
        ("lock_timeout", 7, 8),
    ]
    assert _read(TEXT) == tomllib.loads(TEXT)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "  \n\t\n"])
def test_a_file_may_set_nothing(text: str) -> None:
    assert read_statements(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("max_files", 1),
        ("\nmax_files = ", 2),
        ("a = 1\nmax_files = 5x\n", 2),
        ("a = 1\na = 2\n", 2),
        ("a = 1\n[tool.shadowtree]\n", 2),
        ("[[a]]\n", 1),
        ("a = [1,\n", 1),
        ("a = 'x\n", 1),
        ("a = " + "[" * 5000, 1),
        ("a = " + "9" * 5000, 1),
        ("\x00", 1),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, line: int) -> None:
    with pytest.raises(BadLine) as caught:
        read_statements(text)

    assert caught.value.line == line


@pytest.mark.parametrize(
    "text",
    [
        "[tool.shadowtree]\nmax_files = 1\n",
        "[project]\nname = 'x'\n\n[tool.shadowtree]\nmax_files = 1\n[tool.ruff]\nmax_files = 2\n",
        '[ tool . "shadowtree" ] # ours\r\nmax_files = 1\r\n',
        "this is no toml at all\n[tool.shadowtree]\nmax_files = 1\n",
        "a = '''\n[tool.shadowtree]\nmax_files = 9\n'''\n[tool.shadowtree]\nmax_files = 1",
        'a = """x""" # """\n[tool.shadowtree]\nmax_files = 1',
    ],
)
def test_one_section_of_a_larger_file_is_read(text: str) -> None:
    assert _read_pyproject(text) == {"max_files": 1}


@pytest.mark.parametrize(
    "text", ["", "[tool]\nx = 1\n", "[tool.shadowtree.x]\na = 1", "'''\n[tool.shadowtree]\na = 1\n'''"]
)
def test_a_larger_file_without_the_section_sets_nothing(text: str) -> None:
    assert _read_pyproject(text) == {}


def test_a_bad_line_of_a_section_is_counted_in_the_file() -> None:
    with pytest.raises(BadLine, match="line 4"):
        read_section("[project]\n\n[tool.shadowtree]\nmax_files = \n", TABLE)


def test_a_value_is_put_where_the_key_stands() -> None:
    assert put(TEXT, "max_files", 7) == TEXT.replace("= 5 ", "= 7 ")
    assert put(TEXT, "lock_timeout", "1s") == TEXT.replace("2.5", '"1s"')


def test_a_value_of_several_lines_is_replaced_whole() -> None:
    edited = put(TEXT, "heavy_dirs", ["a b", 'c"\\'])

    assert edited == '# mine\nmax_files = 5  # few\n\nheavy_dirs = ["a b", "c\\"\\\\"]\nlock_timeout = 2.5\n'
    assert _read(edited)["heavy_dirs"] == ["a b", 'c"\\']


@pytest.mark.parametrize(
    ("text", "edited"),
    [
        ("", "k = 1\n"),
        ("# a", "# a\nk = 1\n"),
        ("# a\n", "# a\nk = 1\n"),
        ("a = 2\n\n", "a = 2\n\nk = 1\n"),
        ("k = 3\r\na = 2\r\n", "k = 1\r\na = 2\r\n"),
        ('k = "#"  # c', "k = 1  # c"),
        ('"k" = 3', "k = 1"),
    ],
)
def test_a_key_is_put_and_every_other_line_stays(text: str, edited: str) -> None:
    assert put(text, "k", 1) == edited


def test_a_key_is_dropped_with_its_lines() -> None:
    assert drop(TEXT, "heavy_dirs") == "# mine\nmax_files = 5  # few\n\nlock_timeout = 2.5\n"
    assert drop(TEXT, "unknown") == TEXT
    assert drop("a = 1", "a") == ""


def test_what_cannot_be_read_is_not_edited() -> None:
    with pytest.raises(BadLine, match="line 2"):
        put("k = 1\nbroken\n", "k", 2)
    with pytest.raises(BadLine, match="line 2"):
        drop("k = 1\nbroken\n", "k")


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidInput):
        put("", "k", "a\nb")


@given(st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" #=[]'\"\\"), max_size=20))
def test_whatever_text_is_put_is_read_back(value: str) -> None:
    edited = put("# a\nother = 1\n", "k", value)

    assert tomllib.loads(edited) == {"other": 1, "k": value}
    assert drop(edited, "k") == "# a\nother = 1\n"
