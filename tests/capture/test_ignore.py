from __future__ import annotations

import pytest

from shadowtree.capture.rules.gitignore import MAX_FILE_BYTES, MAX_LINE_BYTES, Stack, parse
from tests.support.patience import comes_back


def enter_all(stack: Stack, directory: bytes) -> Stack:
    for name in directory.split(b"/"):
        stack = stack.enter(name) if name else stack
    return stack


def judge(text: bytes, path: bytes) -> bool | None:
    """Judge one path by an ignore file at the root; a trailing slash makes it a directory."""
    directory, _, name = path.rstrip(b"/").rpartition(b"/")
    return enter_all(Stack.root(parse(text)), directory).verdict(name, path.endswith(b"/"))


MATCHING = [
    ("a plain name", b"foo", b"foo"),
    ("a plain name, deep", b"foo", b"a/b/foo"),
    ("a plain name, of a directory", b"foo", b"foo/"),
    ("a directory", b"foo/", b"a/foo/"),
    ("a leading slash", b"/foo", b"foo"),
    ("a slash in the middle", b"a/foo", b"a/foo"),
    ("a suffix", b"*.o", b"a/b.o"),
    ("a suffix that is the whole name", b"*.o", b".o"),
    ("a prefix", b"foo*", b"foobar"),
    ("a star between", b"a*c", b"abbc"),
    ("a star for nothing", b"a*c", b"ac"),
    ("several stars", b"a*b*c*d", b"a-b-b-c-d"),
    ("a star alone", b"*", b"foo"),
    ("a question mark is one byte", b"caf??", b"caf\xc3\xa9"),
    ("a question mark takes any byte", b"?", b"\xff"),
    ("double star before", b"**/foo", b"foo"),
    ("double star before, deep", b"**/foo", b"a/b/foo"),
    ("double star after", b"a/**", b"a/b/c"),
    ("double star between for nothing", b"a/**/b", b"a/b"),
    ("double star between", b"a/**/b", b"a/x/y/b"),
    ("more than two stars", b"a/***/b", b"a/x/y/b"),
    ("double star in a segment is one star", b"a**b", b"axxb"),
    ("double star glued to the beginning, for nothing", b"foo**/bar", b"foobar"),
    ("double star glued to the beginning, for a slash", b"foo**/bar", b"foo/bar"),
    ("double star glued to the beginning, for more", b"foo**/bar", b"foox/y/bar"),
    ("double star before an escaped slash", rb"**\/b", b"x/y/b"),
    ("two double stars", b"a/**/b/**/c", b"a/b/b/x/c"),
    ("the drawing: anywhere", b"*.o", b"x/y.o"),
    ("the drawing: here", b"/dist", b"dist"),
    ("the drawing: deep", b"a/**/b/*.c", b"a/x/b/y/b/m.c"),
    ("an escaped hash", rb"\#a", b"#a"),
    ("an escaped bang", rb"\!a", b"!a"),
    ("an escaped star", rb"a\*", b"a*"),
    ("an escaped plain byte", rb"\a", b"a"),
    ("an escaped space at the end", b"a\\ ", b"a "),
    ("an escaped space, then others", b"a\\   ", b"a "),
    ("spaces at the end", b"a  ", b"a"),
    ("a tab at the end is kept", b"a\t", b"a\t"),
    ("a carriage return at the end", b"a\r\n", b"a"),
    ("only one carriage return is dropped", b"a\r\r\n", b"a\r"),
    ("a byte order mark", b"\xef\xbb\xbfa", b"a"),
    ("no line feed at the end", b"x\na", b"a"),
    ("what follows a NUL is not read", b"a\0b", b"a"),
    ("a set", b"[abc]x", b"bx"),
    ("a range", b"[a-c]", b"b"),
    ("a range between escapes", rb"[\a-\c]", b"b"),
    ("a range that runs backwards still has its first byte", b"[c-a]", b"c"),
    ("a negated set", b"[!a]", b"b"),
    ("a set negated otherwise", b"[^a]", b"\xfe"),
    ("a bracket first in a set", b"[]a]", b"]"),
    ("a dash last in a set", b"[a-]", b"-"),
    ("a POSIX class", b"[[:digit:][:upper:]]", b"Q"),
    ("a negated POSIX class", b"[![:alpha:]]", b"1"),
    ("no POSIX class without its end", b"[[:a]", b":"),
    ("a set with a slash is one segment", b"[a/b]c", b"bc"),
    ("a name that is no UTF-8", b"\xff*", b"\xff\xfe"),
]


@pytest.mark.parametrize(
    ("text", "path"), [case[1:] for case in MATCHING], ids=[case[0] for case in MATCHING]
)
def test_a_pattern_matches(text: bytes, path: bytes) -> None:
    assert judge(text, path) is True


NOT_MATCHING = [
    ("nothing", b"", b"a"),
    ("blank lines", b"\n\r\n  \n", b" "),
    ("a comment", b"#a", b"#a"),
    ("a bang alone", b"!", b"!"),
    ("a slash alone", b"/", b"a/"),
    ("another case", b"foo", b"Foo"),
    ("a file, for a directory's rule", b"foo/", b"foo"),
    ("two slashes at the end", b"src//", b"src/"),
    ("two slashes between", b"a//b", b"a/b"),
    ("a leading slash, deeper", b"/foo", b"a/foo"),
    ("a slash in the middle, deeper", b"a/foo", b"x/a/foo"),
    ("a star does not pass a slash", b"a/*", b"a/b/c"),
    ("a suffix longer than the name", b"*.tar.gz", b"r.gz"),
    ("head and tail do not share a byte", b"ab*ba", b"aba"),
    ("pieces do not share a byte", b"*ab*ba", b"aba"),
    ("double star after needs a name", b"a/**", b"a/"),
    ("double star before an escaped slash needs a name", rb"**\/b", b"b"),
    ("double star glued behind a wildcard", b"f?o**/bar", b"foo/x/bar"),
    ("an escaped leading slash", rb"\/a", b"a"),
    ("a backslash at the end", b"a\\", b"a\\"),
    ("an open bracket", b"[a", b"[a"),
    ("an unknown POSIX class", b"[[:nope:]]", b"n"),
    ("an empty POSIX class", b"[[::]]", b":"),
    ("an empty range", b"x[c-a]", b"xb"),
    ("a byte order mark elsewhere", b"\n\xef\xbb\xbfa", b"a"),
]


@pytest.mark.parametrize(
    ("text", "path"), [case[1:] for case in NOT_MATCHING], ids=[case[0] for case in NOT_MATCHING]
)
def test_a_pattern_does_not_match(text: bytes, path: bytes) -> None:
    assert judge(text, path) is None


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (b"a\n!a", b"a", False),
        (b"!a\na", b"a", True),
        (b"*.o\n!a.o", b"a.o", False),
        (b"!a.o\n*.o", b"a.o", True),
        (b"a*\n!*.o\n[a]?o", b"a.o", True),
        (b"[ab].o\n!a*", b"a.o", False),
        (b"!*.o\n*\n!a*\n?.o", b"a.o", True),
        (b"/a\n!a", b"a", False),
        (b"!a\n/a", b"a", True),
        (b"*.?\n!*.[o]?\n!?.z", b"a.o", True),
    ],
)
def test_the_last_line_that_matches_wins(text: bytes, name: bytes, expected: bool) -> None:
    assert judge(text, name) is expected


def test_a_rule_for_directories_says_nothing_of_a_file_of_that_name() -> None:
    stack = Stack.root(parse(b"!a\na/"))

    assert stack.verdict(b"a", True) is True
    assert stack.verdict(b"a", False) is False


def test_a_later_source_takes_precedence() -> None:
    stack = Stack.root(parse(b"a\nb\nc"), parse(b"!b\n!c"), parse(b"c"))

    assert [stack.verdict(name, False) for name in (b"a", b"b", b"c", b"d")] == [True, False, True, None]


def test_a_directorys_own_rules_take_precedence_over_inherited_ones() -> None:
    inner = Stack.root(parse(b"*.o\nsub/x")).enter(b"sub").add(parse(b"!*.o\n!x"))

    assert inner.verdict(b"a.o", False) is False
    assert inner.verdict(b"x", False) is False


def test_an_added_source_takes_precedence_and_is_based_where_it_is_added() -> None:
    stack = Stack.root(parse(b"a")).enter(b"sub").add(parse(b"!a\n/b"))

    assert stack.verdict(b"a", False) is False
    assert stack.verdict(b"b", False) is True
    assert stack.enter(b"x").verdict(b"b", False) is None


@pytest.mark.parametrize("text", [b"**/", b"/**/", b"**", b"/**", b"*/"])
def test_a_nested_ignore_file_says_nothing_of_the_directory_that_holds_it(text: bytes) -> None:
    outer = Stack.root()
    inner = outer.enter(b"sub").add(parse(text))

    assert outer.verdict(b"sub", True) is None
    assert inner.verdict(b"x", True) is True


def test_entering_a_directory_leaves_the_outer_stack_as_it_was() -> None:
    outer = Stack.root(parse(b"a/b\n/c"))
    outer.enter(b"a").add(parse(b"c"))

    assert outer.verdict(b"b", False) is None
    assert outer.verdict(b"c", False) is True


@pytest.mark.parametrize("text", [b"", b"*.o\nbuild/", b"**/a/b", b"!x", b"**/**/src/b"])
def test_entering_costs_nothing_where_the_rules_stay_the_same(text: bytes) -> None:
    stack = Stack.root(parse(text))

    assert stack.enter(b"lib") is stack


def test_a_double_star_entered_again_changes_nothing() -> None:
    inner = Stack.root(parse(b"**/a/**/b")).enter(b"a")

    assert inner.enter(b"a") is inner


def test_anchored_rules_are_gone_where_they_can_no_longer_match() -> None:
    inner = Stack.root(parse(b"/a/b\n/dist\n*.o")).enter(b"src")

    assert inner.enter(b"deeper") is inner


@pytest.mark.parametrize(
    ("text", "directory", "expected"),
    [
        (b"*.o", b"", False),
        (b"!a", b"", True),
        (b"!a", b"x/y", True),
        (b"!/a/b", b"", True),
        (b"!/a/b", b"a", True),
        (b"!/a/b", b"x", False),
        (b"!/a/b", b"a/b", False),
        (b"!a/**/b", b"a/x/y", True),
        (b"!a/**/b", b"x", False),
        (b"![", b"", False),
    ],
)
def test_may_include_below_is_false_only_if_no_rule_can_re_include(
    text: bytes, directory: bytes, expected: bool
) -> None:
    assert enter_all(Stack.root(parse(text)), directory).may_include_below() is expected


def test_rules_tell_whether_one_of_them_re_includes() -> None:
    assert Stack.root(parse(b"a\n!b")).may_include_below()
    assert not Stack.root(parse(b"a\n#!b\n\\!c\n![")).may_include_below()


# --- limits ---


def test_a_line_too_long_is_left_out_and_counted() -> None:
    rules = parse(b"a" * (MAX_LINE_BYTES + 1) + b"\nb")

    assert rules.left_out == 1
    assert Stack.root(rules).verdict(b"b", False) is True


def test_lines_beyond_the_end_of_a_huge_file_are_left_out_and_counted() -> None:
    rules = parse(b"#" * (MAX_FILE_BYTES - 4) + b"\na\nabc\nd")

    stack = Stack.root(rules)
    assert rules.left_out == 2
    assert [stack.verdict(name, False) for name in (b"a", b"ab", b"abc", b"d")] == [True, None, None, None]


def test_a_hundred_thousand_plain_names_are_all_in_force() -> None:
    rules = parse(b"".join(b"n%d\n" % number for number in range(100_000)))

    assert rules.left_out == 0
    assert Stack.root(rules).verdict(b"n99999", False) is True


def test_wildcards_beyond_the_budget_are_left_out_and_counted() -> None:
    rules = parse(b"".join(b"a?%d[bc]\n" % number for number in range(100_000)))

    stack = Stack.root(rules)
    assert 0 < rules.left_out < 100_000
    assert stack.verdict(b"ax0b", False) is True
    assert stack.verdict(b"ax99999b", False) is None


HOSTILE = [
    ("stars and letters", b"*a" * 20 + b"b"),
    ("stars and letters, the longest line", b"*a" * 2000 + b"b"),
    ("stars and question marks", b"*?a" * 1300 + b"b"),
    ("stars and sets", b"*[ab]" * 800 + b"c"),
    ("a long piece", b"*" + b"a" * 127 + b"b*"),
    ("double stars", b"**/" * 20 + b"b"),
    ("double stars, the longest line", b"**/" * 1300 + b"b"),
    ("double stars and names", b"a/**/" * 15 + b"b"),
    ("double stars and names, the longest line", b"a/**/" * 800 + b"b"),
    ("double stars and stars", b"*/**/" * 800 + b"b"),
    ("glued double stars", b"a" + b"**/" * 1300 + b"b"),
    ("many segments", b"a/" * 2000 + b"b"),
    ("open brackets", b"[" * 4000),
    ("open POSIX classes", b"[" + b"[:" * 2000 + b"x]"),
    ("small sets", b"[a]" * 1300),
    ("backslashes", b"\\" * 4095),
    ("spaces", b" " * 4095 + b"\\"),
]


@pytest.mark.parametrize("line", [case[1] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_no_pattern_is_slow(line: bytes) -> None:
    """A backtracking matcher would take forever on most of these; here each takes a few milliseconds."""
    with comes_back():
        stack = Stack.root(parse(line))
        for _ in range(30):
            stack.verdict(b"a" * 40, False)
            stack.verdict(b"a" * 255, True)
            stack = stack.enter(b"a")


def test_a_directory_three_thousand_deep_can_be_entered() -> None:
    stack = Stack.root(parse(b"a/**/b\n*/a/c\n!**/a/d"))
    for _ in range(3000):
        stack = stack.enter(b"a")

    assert stack.verdict(b"b", False) is True
    assert stack.verdict(b"c", False) is None
    assert stack.verdict(b"d", False) is False
