"""Patches as git writes and applies them."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import subprocess
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from shadowtree.text.linediff import MAX_TEXT_BYTES, MAX_TEXT_LINES, Part, split_texts
from shadowtree.text.unified_diff import TextDiff, diff_text, list_changes
from tests.support.patience import comes_back

FILE = 0o100644
SCRIPT = 0o100755
LINK = 0o120777


def compare(old: bytes | None, new: bytes | None, *, path: str = "x") -> TextDiff:
    return diff_text(
        path, old, new, old_mode=None if old is None else FILE, new_mode=None if new is None else FILE
    )


def run_git(top: Path, *args: str, stdin: bytes = b"") -> bytes:
    env = {"PATH": os.environ["PATH"], "HOME": str(top), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *args], cwd=top, env=env, input=stdin, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert done.returncode == 0 or "--no-index" in args, done.stderr
    return done.stdout


def put(path: Path, content: bytes | None, mode: int | None) -> None:
    path.unlink(missing_ok=True)
    if content is None or mode is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(content, os.fsencode(path))
    else:
        path.write_bytes(content)
        path.chmod(stat.S_IMODE(mode))


def look(path: Path) -> tuple[str, bytes] | None:
    if path.is_symlink():
        return "link", os.readlink(os.fsencode(path))
    if not path.exists():
        return None
    return "script" if path.stat().st_mode & 0o100 else "file", path.read_bytes()


def blob_id(content: bytes | None) -> str | None:
    return None if content is None else sha1(b"blob %d\0" % len(content) + content).hexdigest()


def assert_applies(
    top: Path, path: str, old: tuple[bytes, int] | None, new: tuple[bytes, int] | None
) -> TextDiff:
    """Assert that git turns the old content into the new one by our patch."""
    old_content, old_mode = old or (None, None)
    new_content, new_mode = new or (None, None)
    blobs = blob_id(old_content), blob_id(new_content)
    result = diff_text(
        path, old_content, new_content, old_mode=old_mode, new_mode=new_mode, blobs=blobs, binary=True
    )
    put(top / path, new_content, new_mode)
    expected = look(top / path)
    put(top / path, old_content, old_mode)

    if result.patch:
        patch = result.applicable.encode("utf-8", "surrogateescape")
        run_git(top, "apply", "--whitespace=nowarn", stdin=patch)

    assert look(top / path) == expected
    return result


# The format


def test_a_patch_has_the_format_of_git() -> None:
    old = b"".join(b"%d\n" % n for n in range(1, 21))
    new = old.replace(b"5\n", b"five\n", 1).replace(b"19\n20\n", b"19\n20")

    result = compare(old, new, path="src/numbers")

    assert result == TextDiff(
        additions=2,
        deletions=2,
        binary=False,
        patch=(
            "diff --git a/src/numbers b/src/numbers\n"
            "--- a/src/numbers\n"
            "+++ b/src/numbers\n"
            "@@ -2,7 +2,7 @@\n"
            " 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
            "@@ -17,4 +17,4 @@\n"
            " 17\n 18\n 19\n-20\n+20\n\\ No newline at end of file\n"
        ),
    )


def test_hunks_whose_contexts_touch_are_one() -> None:
    lines = [b"%d\n" % n for n in range(20)]
    near = [*lines[:3], b"x\n", *lines[4:10], b"y\n", *lines[11:]]
    far = [*lines[:3], b"x\n", *lines[4:11], b"y\n", *lines[12:]]

    assert compare(b"".join(lines), b"".join(near)).patch.count("@@ -") == 1
    assert compare(b"".join(lines), b"".join(far)).patch.count("@@ -") == 2


def test_a_new_file_comes_from_nothing() -> None:
    assert compare(None, b"a\n").patch == (
        "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"
    )


def test_a_deleted_file_goes_to_nothing() -> None:
    assert compare(b"a\nb\n", None).patch == (
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
    )


def test_a_change_of_mode_alone_is_all_header() -> None:
    """Bits that git does not record count too, even for binary or very large files."""
    for content in (b"a\n", b"\0", b"a" * (MAX_TEXT_BYTES + 1)):
        assert diff_text("x", content, content, old_mode=0o100644, new_mode=0o100600) == TextDiff(
            0, 0, binary=False, patch="diff --git a/x b/x\nold mode 100644\nnew mode 100600\n"
        )


def test_a_file_that_became_a_link_is_deleted_and_made_anew() -> None:
    result = diff_text("x", b"a\nb\n", b"a", old_mode=FILE, new_mode=LINK)

    assert (result.additions, result.deletions) == (1, 2)
    assert result.patch == (
        "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n"
        "diff --git a/x b/x\nnew file mode 120777\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+a\n"
        "\\ No newline at end of file\n"
    )


@pytest.mark.parametrize("content", [None, b"", b"a\0"])
def test_nothing_changed_is_an_empty_patch(content: bytes | None) -> None:
    assert compare(content, content) == TextDiff(0, 0, binary=False, patch="")


@pytest.mark.parametrize(
    ("old", "new", "is_binary"),
    [
        (b"a", b"\0", True),
        (b"\0", None, True),
        (b"a", b"b" * 7999 + b"\0", True),
        (b"a", b"b" * 8000 + b"\0", False),
    ],
)
def test_a_nul_early_in_either_content_makes_it_binary(
    old: bytes, new: bytes | None, is_binary: bool
) -> None:
    result = compare(old, new)

    assert result.binary == is_binary
    assert (result.patch == "") == is_binary


def test_a_binary_file_that_became_a_link_has_no_patch() -> None:
    found = diff_text("x", b"\0", b"a", old_mode=FILE, new_mode=LINK)

    assert (found.additions, found.deletions, found.binary, found.patch) == (0, 0, True, "")


@pytest.mark.parametrize("large", [b"x" * (MAX_TEXT_BYTES + 1), b"\n" * (MAX_TEXT_LINES + 1)])
def test_what_is_too_large_is_not_compared(large: bytes) -> None:
    for found in (
        compare(large, b"a\n"),
        compare(None, large),
        diff_text("x", large, b"a", old_mode=FILE, new_mode=LINK),
    ):
        assert (found.additions, found.deletions, found.binary, found.patch) == (0, 0, False, "")


@pytest.mark.parametrize(
    ("old", "new"), [(b"\0", b"a\0"), (None, b"\0"), (b"\0", None), (b"x" * (MAX_TEXT_BYTES + 1), b"a")]
)
def test_git_refuses_a_patch_that_does_not_say_enough(
    tmp_path: Path, old: bytes | None, new: bytes | None
) -> None:
    """If git skipped a line, half a patch would seem applied."""
    put(tmp_path / "x", old, FILE)
    stdin = compare(old, new).applicable.encode("utf-8")
    done = subprocess.run(["git", "apply"], cwd=tmp_path, input=stdin, capture_output=True, check=False)

    assert b"cannot apply binary patch" in done.stderr


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a b", "a/a b\t"),
        ("caf\u00e9", "a/caf\u00e9"),
        ("caf\udce9", '"a/caf\\351"'),
        ("a\u202eb", '"a/a\\342\\200\\256b"'),
        ('q"\\\n\x01\x7f', '"a/q\\"\\\\\\n\\001\\177"'),
    ],
)
def test_a_strange_name_is_quoted_as_git_does(path: str, name: str) -> None:
    assert f"\n--- {name}\n" in compare(b"a\n", b"b\n", path=path).patch


@given(old=st.none() | st.binary(max_size=50), new=st.binary(max_size=50))
def test_every_patch_can_be_printed_and_goes_through_json(old: bytes | None, new: bytes) -> None:
    patch = compare(old, new, path="caf\udce9\n").patch

    assert json.loads(json.dumps(patch)) == patch
    assert json.loads(json.dumps(patch, ensure_ascii=False).encode("utf-8")) == patch
    assert patch.encode("utf-8").decode("utf-8") == patch


# Compared with git

lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "\r\n", "a\r\n", "\u00e9\f\u2028\n", "-- a\n"]))
texts = st.builds(lambda some, end: ("".join(some) + end).encode(), lines, st.sampled_from(["", "a", "\r"]))
latin = st.just(b"caf\xe9\nau lait\n") | st.just(b"caf\xe9\nnoir\n")
binaries = st.binary(max_size=200).map(lambda some: b"\0" + some)
files = st.none() | st.tuples(texts | latin | binaries, st.sampled_from([FILE, SCRIPT, 0o100600]))
links = st.tuples(st.sampled_from([b"a", b"a\nb", b"../c"]), st.just(LINK))
names = st.sampled_from(
    ["x", "a b", 'src/q"uo\\te', "caf\u00e9", "new\nline", "t\tab", " x ", "caf\udce9", "\u202ex"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(path=names, old=files | links, new=files | links)
def test_git_apply_turns_the_old_file_into_the_new_one(
    tmp_path: Path, path: str, old: tuple[bytes, int] | None, new: tuple[bytes, int] | None
) -> None:
    assert_applies(tmp_path, path, old, new)


def hunks_of_git(top: Path, old: bytes, new: bytes) -> str:
    """Return git's hunks for two texts, without its indent heuristic."""
    (top / "old").write_bytes(old)
    (top / "new").write_bytes(new)
    patch = run_git(top, "diff", "--no-index", "--no-indent-heuristic", "old", "new").decode(
        "utf-8", "replace"
    )
    # After a range git appends what it takes for the name of a function.
    return re.sub(r"^(@@ .* @@).*", r"\1", patch[patch.index("\n@@ ") + 1 :], flags=re.MULTILINE)


def hunks_of(patch: str) -> str:
    return patch[patch.index("\n@@ ") + 1 :]


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 12))]
)
def test_hunks_are_those_of_git(tmp_path: Path, seed: int) -> None:
    """Some hundred edits of a long file with many equal lines."""
    chance = random.Random(seed)
    old = [chance.choice([b"}\n", b"\n", b"%d\n" % chance.randrange(400)]) for _ in range(3000)]
    new = list(old)
    for _ in range(150):
        at = chance.randrange(len(new))
        new[at : at + chance.randrange(4)] = chance.choices(old, k=chance.randrange(4))

    result = assert_applies(tmp_path, "x", (b"".join(old), FILE), (b"".join(new), FILE))

    assert hunks_of(result.patch) == hunks_of_git(tmp_path, b"".join(old), b"".join(new))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(old=texts, new=texts)
def test_hunks_of_short_texts_are_those_of_git(tmp_path: Path, old: bytes, new: bytes) -> None:
    assume(old != new)

    assert hunks_of(compare(old, new).patch) == hunks_of_git(tmp_path, old, new)


# Very different texts

SHORT_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"]), max_size=30)
MANY_LINES = st.lists(st.integers(0, 40).map(lambda n: b"%d\n" % n), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(old=SHORT_LINES | MANY_LINES, new=SHORT_LINES | MANY_LINES, max_steps=st.integers(0, 900))
def test_a_spent_budget_makes_a_longer_patch_and_no_wrong_one(
    old: list[bytes], new: list[bytes], max_steps: int
) -> None:
    one, other = split_texts(b"".join(old), b"".join(new))
    result = list(old)
    for change in reversed(list_changes(one, other, max_steps)):
        result[change.old.start : change.old.stop] = new[change.new.start : change.new.stop]

    assert result == new


def test_where_the_search_gives_up_all_is_replaced_from_the_first_difference_to_the_last() -> None:
    old, new = split_texts(b"a\n3\n1\n2\n4\nz\n", b"a\n1\n2\n3\n6\nz\n")

    assert list_changes(old, new, 0) == [Part(range(1, 5), range(1, 5))]


# Time


def number_lines(count: int) -> list[bytes]:
    return [b"line %d\n" % n for n in range(count)]


def draw(count: int, seed: int, values: int) -> list[bytes]:
    chance = random.Random(seed)
    return [b"%d\n" % chance.randrange(values) for _ in range(count)]


def draw_sections(count: int, seed: int) -> list[bytes]:
    """Unique lines between stretches that no search can finish: each uses up its budget."""
    size = count // 4
    some = draw(count, seed, 50)
    return [line for n in range(4) for line in (b"section %d\n" % n, *some[n * size : (n + 1) * size])]


HARD: dict[str, Callable[[int], tuple[list[bytes], list[bytes]]]] = {
    "rewritten": lambda n: (number_lines(n), [b"other %d\n" % number for number in range(n)]),
    "reversed": lambda n: (number_lines(n), number_lines(n)[::-1]),
    "shuffled": lambda n: (number_lines(n), random.Random(1).sample(number_lines(n), n)),
    "alternating": lambda n: ([b"a\n", b"b\n"] * (n // 2), [b"a\n", b"a\n", b"b\n", b"b\n"] * (n // 4)),
    "two values": lambda n: (draw(n, 1, 2), draw(n, 2, 2)),
    "fifty values": lambda n: (draw(n, 1, 50), draw(n, 2, 50)),
    "many values": lambda n: (draw(n, 1, n // 2), draw(n, 2, n // 2)),
    "two blocks swapped": lambda n: (number_lines(n) + [b"x\n"] * n, [b"x\n"] * n + number_lines(n)),
    "sections": lambda n: (draw_sections(n, 1), draw_sections(n, 2)),
}


@pytest.mark.parametrize(
    "count",
    [pytest.param(3_000, id="thousands"), pytest.param(30_000, id="many", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kind", HARD)
def test_the_hardest_texts_come_back(tmp_path: Path, kind: str, count: int) -> None:
    """Without a limit the worst of the long ones takes ten times as long, and more with every line."""
    old, new = HARD[kind](count)

    with comes_back():
        assert_applies(tmp_path, "x", (b"".join(old), FILE), (b"".join(new), FILE))


def test_a_text_on_which_every_search_spends_its_budget_comes_back() -> None:
    with comes_back():
        result = compare(*(b"".join(text) for text in HARD["fifty values"](20_000)))

    assert result.additions == result.deletions > 0


def test_scattered_edits_of_a_long_file_are_found_exactly() -> None:
    old = number_lines(30_000)
    new = [b"changed %d\n" % n if n % 5 == 0 else line for n, line in enumerate(old)]

    result = compare(b"".join(old), b"".join(new))

    assert (result.additions, result.deletions) == (6_000, 6_000)
