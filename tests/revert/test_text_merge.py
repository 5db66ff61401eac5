"""Merges of texts: some written by hand, and thousands compared with `git merge-file`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from itertools import groupby, islice
from pathlib import Path
from random import Random

import pytest

from shadowtree.text import linediff
from shadowtree.text.linediff import MAX_TEXT_BYTES, MAX_TEXT_LINES, is_binary
from shadowtree.text.merge import Collision, Merge, NotMerged, merge_text, write_markers
from shadowtree.text.unified_diff import diff_text
from tests.support.patience import comes_back

Case = tuple[bytes, bytes, bytes]
"""Base, ours, theirs."""


def text(drawn: str) -> bytes:
    """Make a text from a drawing: a word is a line, `_` an empty one; after `|` there is no line feed."""
    lines = "".join(word.replace("_", "") + "\n" for word in drawn.split())
    return lines.replace("|\n", "").encode("ascii")


def merge_drawn(base: str, ours: str, theirs: str) -> Merge:
    merge = merge_text(text(base), text(ours), text(theirs))
    assert isinstance(merge, Merge)
    return merge


def mark(merge: Merge) -> bytes:
    return write_markers(merge, ours_label="ours", theirs_label="theirs")


def make_env(top: Path) -> dict[str, str]:
    """Make git ignore all configuration and repositories."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(top),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(top.parent),
    }


def ask_git(top: Path, cases: Sequence[Case]) -> list[tuple[int, bytes]]:
    """Merge each case with git: return the number of conflicts, up to 127, and the text."""
    for number, case in enumerate(cases):
        for name, content in zip(("base", "ours", "theirs"), case, strict=True):
            (top / f"{number}.{name}").write_bytes(content)
    script = f"""
        number=0
        while [ $number -lt {len(cases)} ]; do
            git merge-file -p -L ours -L base -L theirs \\
                $number.ours $number.base $number.theirs > $number.out
            echo $?
            number=$((number + 1))
        done
    """
    done = subprocess.run(["sh", "-c", script], cwd=top, env=make_env(top), capture_output=True, check=True)
    assert done.stderr == b""
    codes = [int(code) for code in done.stdout.split()]
    return [(code, (top / f"{number}.out").read_bytes()) for number, code in enumerate(codes)]


def is_as_in_git(case: Case, conflicts: int, content: bytes) -> bool:
    merge = merge_text(*case)
    assert isinstance(merge, Merge), merge
    merged = None if conflicts else content
    return (min(len(merge.collisions), 127), mark(merge), merge.content) == (conflicts, content, merged)


# By hand

SETTLED = {
    "a line between": ("a b c d", "a B c d", "a b c D", "a B c D"),
    "at both ends": ("a b c", "x a b c", "a b c y", "x a b c y"),
    "deleted and added": ("a b c d", "b c d", "a b c d e", "b c d e"),
    "alike": ("a b c d e", "a x c d e", "a x c d E", "a x c d E"),
    "deleted alike": ("a b c d e", "a c d e", "a c d E", "a c d E"),
    "alike, by other ways": ("c b b b a a b c b", "b a b c b", "b a b a", "b a b a"),
    "many lines by few": ("a b c d e f g", "a b g", "A b c d e f g", "A b g"),
    "a gap slides down": ("a b c b c d e", "a b c d e", "A b c b c d e", "A b c d e"),
    "an addition slides down": ("a x b c", "a x x b c", "A x b c", "A x x b c"),
    "the end of the last line": ("a b c|", "a b c", "A b c|", "A b c"),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "merged"), SETTLED.values(), ids=SETTLED)
def test_changes_apart_and_alike_are_merged(base: str, ours: str, theirs: str, merged: str) -> None:
    assert merge_drawn(base, ours, theirs).content == text(merged)
    assert merge_drawn(base, theirs, ours).content == text(merged)


COLLIDING = {
    "one line": ("a b c", "a x c", "a y c", [("x", "y")]),
    "touching": ("a b c d", "a B c d", "a b C d", [("B c", "b C")]),
    "overlapping": ("a b c d e", "a X d e", "a b Y e", [("X d", "b Y")]),
    "deleted and changed": ("a b c", "a c", "a x c", [("", "x")]),
    "added at one place": ("a b", "a x b", "a y b", [("x", "y")]),
    "nothing at first": ("", "a", "b", [("a", "b")]),
    "everything deleted": ("a b c", "", "a x c", [("", "a x c")]),
    "without a line feed": ("a|", "b|", "c|", [("b|", "c|")]),
    "line feed and line": ("a", "a|", "b", [("a|", "b")]),
    "narrowed": ("1 2", "x A y z w v", "x B y z w v C", [("A", "B"), ("", "C")]),
    "three lines between": ("1 2 3 4 5", "A 2 3 4 B", "C 2 3 4 D", [("A 2 3 4 B", "C 2 3 4 D")]),
    "four lines between": ("1 2 3 4 5 6", "A 2 3 4 5 B", "C 2 3 4 5 D", [("A", "C"), ("B", "D")]),
    "braces between": (
        "1 { { } } _ 6",
        "A { { } } _ B",
        "C { { } } _ D",
        [("A { { } } _ B", "C { { } } _ D")],
    ),
    "our change between": ("1 2 3 4 5", "A 2 x 4 B", "C 2 3 4 D", [("A", "C"), ("B", "D")]),
    "noise": ("p q r } s t u v", "} } } }", "p q r } s t u V", [("} } } }", "p q r } s t u V")]),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "hunks"), COLLIDING.values(), ids=COLLIDING)
def test_changes_at_one_place_collide(
    base: str, ours: str, theirs: str, hunks: list[tuple[str, str]]
) -> None:
    merge = merge_drawn(base, ours, theirs)

    assert merge.content is None
    assert [(hunk.ours, hunk.theirs) for hunk in merge.collisions] == [(text(a), text(b)) for a, b in hunks]


def test_what_is_drawn_here_is_what_git_does(tmp_path: Path) -> None:
    drawn = [case[:3] for case in (*SETTLED.values(), *COLLIDING.values())]
    cases = [(text(base), text(ours), text(theirs)) for base, ours, theirs in drawn]

    answers = ask_git(tmp_path, cases)

    assert [
        case for case, answer in zip(cases, answers, strict=True) if not is_as_in_git(case, *answer)
    ] == []


def test_a_hunk_tells_where_it_is_in_each_text() -> None:
    merge = merge_drawn("a b c d e f g", "a b x y c d e F g", "b c d e G H g")

    assert merge.pieces == (
        text("b x y c d e"),
        Collision(
            ours=text("F"),
            base=text("f"),
            theirs=text("G H"),
            ours_line=8,
            line_end=b"\n",
        ),
        text("g"),
    )


def test_hunks_of_one_collision_have_all_that_stood_there() -> None:
    merge = merge_drawn("a 1 2 b", "a A x y z w B b", "a C x y z w D b")

    assert [hunk.base for hunk in merge.collisions] == [text("1 2")] * 2


def test_two_sides_in_two_orders_make_the_same_hunks() -> None:
    one, other = (
        merge_drawn("a b", "a x", "a y").collisions[0],
        merge_drawn("a b", "a y", "a x").collisions[0],
    )

    assert (one.ours, one.theirs) == (other.theirs, other.ours)


# Binary and too large contents

NUL = b"\0"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [(b"a", b"b", b"a", b"b"), (b"a", b"a", b"b", b"b"), (b"a", b"b", b"b", b"b"), (b"a", b"a", b"a", b"a")],
    ids=["ours changed", "theirs changed", "changed alike", "nothing changed"],
)
def test_what_one_side_alone_changed_is_taken(base: bytes, ours: bytes, theirs: bytes, merged: bytes) -> None:
    merge = merge_text(base, ours, theirs)

    assert isinstance(merge, Merge)
    assert merge.content == merged
    assert merge.collisions == []


@pytest.mark.parametrize("side", range(3), ids=["base", "ours", "theirs"])
@pytest.mark.parametrize(
    ("ballast", "reason"),
    [
        (NUL, "binary"),
        (b"\n" * (MAX_TEXT_LINES + 1), "too large"),
        (b"x" * MAX_TEXT_BYTES, "too large"),
    ],
    ids=["binary", "lines", "bytes"],
)
def test_what_is_no_text_or_too_large_is_not_merged(side: int, ballast: bytes, reason: str) -> None:
    case = [b"a\nb\nc\n", b"A\nb\nc\n", b"a\nb\nC\n"]
    case[side] += ballast

    assert merge_text(*case) == NotMerged(reason)  # type: ignore[arg-type]  # one of the three


@pytest.mark.parametrize("size", [0, 7999, 8000], ids=["at once", "last of the window", "behind it"])
def test_binary_is_what_the_diff_takes_for_it(size: int) -> None:
    content = b"x" * size + NUL

    compared = diff_text("x", content, content + b"y", old_mode=0o100644, new_mode=0o100644)

    assert is_binary(content) == compared.binary == (size < 8000)


def test_bytes_are_kept_whatever_they_are() -> None:
    odd = [
        b"\xff\xfe\n",
        b"a\rb\n",
        b"\x0b\x0c\x1c\x85\n",
        "\u2028\n".encode(),
        b"x" * 9000 + NUL + b"\n",
        b"\r\n",
    ]

    merge = merge_text(b"".join(odd), b"".join([b"first\n", *odd]), b"".join([*odd, b"last"]))

    assert isinstance(merge, Merge)
    assert merge.content == b"".join([b"first\n", *odd, b"last"])


# Markers


def test_markers_enclose_both_sides() -> None:
    merge = merge_drawn("a b c", "a x c", "a y z c")

    assert write_markers(merge, ours_label="mine: ü", theirs_label="\udcff") == (
        b"a\n<<<<<<< mine: \xc3\xbc\nx\n=======\ny\nz\n>>>>>>> \xff\nc\n"
    )


def test_without_hunks_there_are_no_markers() -> None:
    assert mark(merge_drawn("a b c", "A b c", "a b C")) == text("A b C")


def test_a_last_line_without_an_end_gets_one_before_a_marker() -> None:
    assert mark(merge_drawn("a", "b|", "c|")) == b"<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n"


@pytest.mark.parametrize(
    ("case", "line_end"),
    [
        ((b"a\r\nb\r\n", b"a\r\nx\r\n", b"a\r\ny\r\n"), b"\r\n"),
        ((b"a\nb\r\n", b"a\r\nx\r\n", b"a\r\ny\r\n"), b"\n"),
        ((b"a\r\nb\r\n", b"a\nx\r\n", b"a\r\ny\r\n"), b"\n"),
        ((b"a\r\nb\r\n", b"a\r\nx\r\n", b"a\ny\r\n"), b"\n"),
        ((b"a\r\n", b"x", b"y"), b"\r\n"),
        ((b"a\r\n", b"", b"y\r\n"), b"\r\n"),
        ((b"a", b"x\r\n", b"y\r\n"), b"\n"),
        ((b"", b"x\r\n", b"y\r\n"), b"\n"),
        ((b"a\r\nb", b"a\r\nx", b"a\r\ny"), b"\r\n"),
    ],
)
def test_markers_end_as_the_lines_around_them(tmp_path: Path, case: Case, line_end: bytes) -> None:
    merge = merge_text(*case)

    assert isinstance(merge, Merge)
    assert [hunk.line_end for hunk in merge.collisions] == [line_end]
    assert mark(merge) == ask_git(tmp_path, [case])[0][1]


# Compared with git


def change(
    chance: Random, lines: list[bytes], draw: Callable[[], bytes], edits: int, longest: int = 4
) -> list[bytes]:
    """Replace, delete, add, repeat and move some runs of lines."""
    lines = list(lines)
    for _ in range(edits):
        start = chance.randint(0, len(lines))
        run = lines[start : start + chance.randint(0, longest)]
        match chance.randrange(4):
            case 0:
                lines[start : start + len(run)] = [draw() for _ in range(chance.randint(0, longest))]
            case 1:
                del lines[start : start + len(run)]
            case 2:
                lines[start:start] = [draw() for _ in range(chance.randint(0, longest))]
            case _:
                if chance.random() < 0.5:
                    del lines[start : start + len(run)]
                to = chance.randint(0, len(lines))
                lines[to:to] = run
    return lines


Two = tuple[list[bytes], list[bytes]]
Three = tuple[list[bytes], list[bytes], list[bytes]]


def draw_letters(chance: Random) -> Three:
    """Return a few short lines, often repeated, so that there are many ways to compare them."""
    some = [b"a\n", b"b\n", b"c\n", b"d\n", b"\n", b"}\n", b"\t{\n"][: chance.randint(1, 7)]
    base = chance.choices(some, k=chance.randint(0, 20))
    return draw_sides(chance, base, lambda: chance.choice(some), edits=4)


def draw_code(chance: Random) -> Three:
    """Return functions that are all slightly similar."""

    def draw() -> bytes:
        return b"    " * chance.randint(1, 3) + b"call_%d()\n" % chance.randrange(30)

    base = []
    for _ in range(chance.randint(2, 20)):
        base += [b"def name_%d():\n" % chance.randrange(50), *(draw() for _ in range(chance.randint(1, 8)))]
        base += chance.choice([[b"    return\n", b"\n"], [b"\n", b"\n"], [b"}\n"]])
    return draw_sides(chance, base, draw, edits=8)


def draw_noise(chance: Random) -> Three:
    """Return long stretches that have only some frequent lines in common."""
    share, frequent = chance.random(), [b"\n", b"}\n", b"else\n"][: chance.randint(1, 3)]

    def draw() -> bytes:
        is_frequent = chance.random() < share
        return (
            chance.choice(frequent) if is_frequent else b"%d\n" % chance.randrange(10 ** chance.randint(1, 5))
        )

    base = [draw() for _ in range(chance.randint(10, 250))]
    return base, change(chance, base, draw, 3, longest=100), change(chance, base, draw, 3, longest=100)


def draw_line_ends(chance: Random) -> Three:
    """Return lines with carriage returns, in some places or everywhere."""

    def spoil(lines: list[bytes]) -> list[bytes]:
        share = chance.choice([0, 0.1, 0.9, 1])
        return [line[:-1] + b"\r\n" if chance.random() < share else line for line in lines]

    base, ours, theirs = draw_letters(chance)
    return spoil(base), spoil(ours), spoil(theirs)


def draw_long(chance: Random) -> Three:
    """Return some thousand lines with so many edits that a search is cut short."""
    values = chance.choice([3, 30, 300, 3000])

    def draw() -> bytes:
        return b"%d\n" % chance.randrange(values)

    base = [draw() for _ in range(chance.randint(700, 2500))]
    edits = chance.choice([10, 100, 400])
    return base, change(chance, base, draw, edits, longest=6), change(chance, base, draw, edits, longest=6)


def draw_sides(chance: Random, base: list[bytes], draw: Callable[[], bytes], *, edits: int) -> Three:
    """Change a base twice; sometimes the second change starts from the result of the first."""
    ours = change(chance, base, draw, chance.randint(0, edits))
    start = ours if chance.random() < 0.25 else base
    theirs = change(chance, start, draw, chance.randint(0, edits))
    return base, ours, theirs


KINDS = {
    "letters": draw_letters,
    "code": draw_code,
    "noise": draw_noise,
    "line ends": draw_line_ends,
    "long": draw_long,
}


def generate(kind: str, seed: int) -> Case:
    chance = Random(f"{kind} {seed}")

    def join(lines: list[bytes]) -> bytes:
        return b"".join(lines)[: -1 if chance.random() < 0.15 else None]

    base, ours, theirs = KINDS[kind](chance)
    return join(base), join(ours), join(theirs)


def assert_same_as_git(top: Path, kind: str, seeds: range) -> None:
    differing = []
    rest = iter(seeds)
    while some := list(islice(rest, 500)):
        cases = [generate(kind, seed) for seed in some]
        for seed, case, answer in zip(some, cases, ask_git(top, cases), strict=True):
            if not is_as_in_git(case, *answer):
                differing.append(seed)
    assert differing == [], f"these seeds of {kind!r} are merged otherwise by git"


@pytest.mark.parametrize(
    ("kind", "count"),
    [("letters", 200), ("code", 120), ("noise", 80), ("line ends", 120), ("long", 4)],
    ids=KINDS,
)
def test_generated_texts_are_merged_as_by_git(tmp_path: Path, kind: str, count: int) -> None:
    assert_same_as_git(tmp_path, kind, range(count))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("letters", 25_000),
        ("code", 15_000),
        ("noise", 10_000),
        ("line ends", 10_000),
        ("long", 300),
    ],
    ids=KINDS,
)
def test_many_more_texts_are_merged_as_by_git(tmp_path: Path, kind: str, count: int) -> None:
    assert_same_as_git(tmp_path, kind, range(10_000, 10_000 + count))


# A merge shows little of how two long texts were compared; a diff shows everything.


def draw_dense(chance: Random) -> Two:
    """Return texts with edits nearly everywhere, so that a search is cut short."""
    values = chance.choice([20, 100, 300])

    def draw() -> bytes:
        return b"%d\n" % chance.randrange(values)

    old = [draw() for _ in range(1500)]
    return old, change(chance, old, draw, 1000, longest=1)


def draw_runs(chance: Random) -> Two:
    """Return more than 65,536 lines: then git cuts after runs of more than twenty equal lines."""
    values = chance.choice([4, 8, 20])

    def draw() -> bytes:
        return b"%d\n" % chance.randrange(values)

    old = [draw() for _ in range(36_000)]
    new = [draw(), *old[:12_000]]
    at = 12_000
    while at < 24_000:
        length = chance.randint(10, 25)
        new += [*old[at : at + length], *(draw() for _ in range(chance.randint(0, 6)))]
        at += length + chance.randint(0, 6)
    return old, [*new, *old[at:], draw()]


def draw_mirrored(chance: Random) -> Two:
    """Return texts that are equal forwards and backwards, so that both ends of a search get equally far."""
    values = chance.choice([20, 100])
    old, new = ([b"%d\n" % chance.randrange(values) for _ in range(700)] for _ in range(2))
    return old + old[::-1], new + new[::-1]


def draw_noise_at_the_border(_: Random) -> Two:
    """Return a brace among 103 deleted lines, and 34 braces; with fewer lines it would not be noise."""
    gone = [b"gone %d\n" % n for n in range(110)]
    return [*gone, b"}\n", *gone[:3], *[b"}\n"] * 32, b"rare\n"], [*[b"}\n"] * 40, b"rare\n", b"come\n"]


def list_changes_of_git(top: Path, old: bytes, new: bytes) -> list[tuple[range, range]]:
    """Read a diff with one line of context: the deleted and the added lines at each place."""
    (top / "old").write_bytes(old)
    (top / "new").write_bytes(new)
    command = [
        "git",
        "diff",
        "--no-index",
        "--no-indent-heuristic",
        "--diff-algorithm=myers",
        "-U1",
        "old",
        "new",
    ]
    diff = subprocess.run(command, cwd=top, env=make_env(top), capture_output=True, check=False).stdout
    changes = []
    for hunk in diff.split(b"\n@@ ")[1:]:
        header, *lines = hunk.splitlines()
        old_at, new_at = (abs(int(start.partition(b",")[0])) - 1 for start in header.split()[:2])
        for kind, group in groupby(lines, key=lambda line: line.startswith(b" ")):
            marks = [line[:1] for line in group]
            gone, come = (len(marks) - marks.count(mark) for mark in (b"+", b"-"))
            if not kind:
                changes.append((range(old_at, old_at + gone), range(new_at, new_at + come)))
            old_at, new_at = old_at + gone, new_at + come
    return changes


def assert_compares_like_git(top: Path, draw: Callable[[Random], Two], seeds: range) -> None:
    for seed in seeds:
        old, new = draw(Random(seed))
        numbers = {line: number for number, line in enumerate({*old, *new})}
        changes = linediff.find_changes(
            [numbers[line] for line in old], [numbers[line] for line in new], linediff.Steps(10**9)
        )

        expected = list_changes_of_git(top, b"".join(old), b"".join(new))
        assert [(part.old, part.new) for part in changes] == expected, f"seed {seed}"


@pytest.mark.parametrize("draw", [draw_dense, draw_runs, draw_mirrored, draw_noise_at_the_border])
def test_long_texts_are_compared_as_by_git(tmp_path: Path, draw: Callable[[Random], Two]) -> None:
    assert_compares_like_git(tmp_path, draw, range(2))


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_dense, draw_runs, draw_mirrored])
def test_many_more_long_texts_are_compared_as_by_git(tmp_path: Path, draw: Callable[[Random], Two]) -> None:
    assert_compares_like_git(tmp_path, draw, range(100, 200))


# Time

COUNT = 30_000
UNIQUE = [b"%d\n" % n for n in range(6 * COUNT)]


def draw_values(seed: int, values: int) -> list[bytes]:
    chance = Random(seed)
    return [b"%d\n" % chance.randrange(values) for _ in range(COUNT)]


def draw_shuffled(seed: int) -> list[bytes]:
    return Random(seed).sample(UNIQUE[:COUNT], COUNT)


def replace_every(step: int, first: int, word: bytes) -> list[bytes]:
    return [word + line if n % step == first else line for n, line in enumerate(UNIQUE)]


HARD: dict[str, Callable[[], Three]] = {
    "shuffled": lambda: (draw_shuffled(1), draw_shuffled(2), draw_shuffled(3)),
    "two values": lambda: (draw_values(1, 2), draw_values(2, 2), draw_values(3, 2)),
    "fifty values": lambda: (draw_values(1, 50), draw_values(2, 50), draw_values(3, 50)),
    "a collision at every other line": lambda: (
        UNIQUE,
        replace_every(2, 0, b"o"),
        replace_every(2, 0, b"t"),
    ),
    "a change at every other line": lambda: (
        UNIQUE,
        replace_every(4, 0, b"o"),
        replace_every(4, 2, b"t"),
    ),
    "equal lines": lambda: ([b"\n"] * COUNT * 6, [b"\n"] * COUNT * 3, [*[b"\n"] * COUNT * 4, b"x\n"]),
}


TOO_DIFFERENT = {"shuffled", "two values", "fifty values", "a collision at every other line"}
ORDINARY = {"shuffled", "a change at every other line"}
"""One that is too different and one that is merged; all use the budget in the same way."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind in ORDINARY else [pytest.mark.slow]) for kind in HARD],
)
def test_the_hardest_texts_come_back(kind: str) -> None:
    base, ours, theirs = (b"".join(lines) for lines in HARD[kind]())

    with comes_back():
        merge = merge_text(base, ours, theirs)

    assert (merge == NotMerged("too different")) == (kind in TOO_DIFFERENT)


def test_the_budget_never_changes_a_merge() -> None:
    """A smaller budget gives the same merge or none."""
    case = generate("code", 1)
    merges = [merge_text(*case)]
    merges += [merge_text(*case, max_steps=steps) for steps in range(0, 20_000, 400)]

    assert merges.count(merges[0]) > 1
    assert [merge for merge in merges if merge not in (merges[0], NotMerged("too different"))] == []
    assert NotMerged("too different") in merges


def test_an_ordinary_file_takes_few_steps() -> None:
    """10,000 lines with twenty edits take a twentieth of the budget."""
    base = [b"    line %d\n" % n if n % 5 else b"\n" for n in range(10_000)]
    ours, theirs = list(base), list(base)
    for at in range(500, 10_000, 1000):
        ours[at], theirs[at + 300] = b"ours\n", b"theirs\n"

    merge = merge_text(b"".join(base), b"".join(ours), b"".join(theirs), max_steps=400_000)

    assert isinstance(merge, Merge)
    assert merge.content is not None
