"""The ignore rules compared with git itself, on random pattern sets from a fixed seed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from shadowtree.capture.rules import gitignore as ignore

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git to compare with")

Sources = dict[bytes, bytes]
"""The content of each ignore file, by its path in the worktree."""
Verdicts = dict[bytes, bool | None]

EXCLUDES_FILE = b".git/excludes"
INFO_EXCLUDE = b".git/info/exclude"

NAMES = [
    b"a", b"b", b"c", b"aa", b"ab", b"abc", b"a.c", b".a", b"foo", b"foobar", b"fooa", b"bar", b"x y", b"x ",
    b"#a", b"!a", b"a\\", b"[a]", b"a-b", b"*", b"\xff", b"caf\xc3\xa9", b"A", b"1", b"a\tb", b"b\r",
]  # fmt: skip
DIRS = [
    b"a", b"b", b"foo", b"foobar", b"x ", b"a.c", b"\xff",
    b"a/a", b"a/b", b"a/foo", b"a/b/a", b"a/b/foo", b"a/b/a/b", b"b/a", b"foo/a", b"foo/bar", b"foo/a/bar",
    b"foobar/foo", b"b/a/b", b"a.c/foo", b"x /a",
]  # fmt: skip
NESTED = [b"a/.gitignore", b"a/b/.gitignore", b"foo/.gitignore"]


class Git:
    """A repository whose files stay the same while its ignore files change."""

    def __init__(self, root: Path) -> None:
        self.root = os.fsencode(root)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "-q")
        self.git("config", "core.excludesFile", str(root / EXCLUDES_FILE.decode()))
        self.dirs = set(DIRS)
        self.paths = sorted(self.dirs | {b"%b/%b" % (d, n) for d in DIRS for n in NAMES} | set(NAMES))
        for path in DIRS:
            os.makedirs(os.path.join(self.root, path), exist_ok=True)
        for path in set(self.paths) - self.dirs:
            Path(os.fsdecode(os.path.join(self.root, path))).touch()
        self.written: set[bytes] = {INFO_EXCLUDE}

    def git(self, *args: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["git", *args], cwd=self.root, env=self.env, input=stdin, capture_output=True, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    def verdicts(self, sources: Sources, paths: list[bytes]) -> Verdicts:
        """Return git's verdict on these paths under these ignore files."""
        for path in self.written - set(sources):
            Path(os.fsdecode(os.path.join(self.root, path))).unlink(missing_ok=True)
        for path, text in sources.items():
            Path(os.fsdecode(os.path.join(self.root, path))).write_bytes(text)
        self.written = set(sources)
        asked = b"".join(path + b"\0" for path in paths)
        fields = self.git("check-ignore", "--no-index", "-z", "--stdin", "-v", "-n", stdin=asked).split(b"\0")
        return {
            path: None if not source else not pattern.startswith(b"!")
            for source, pattern, path in zip(fields[0:-1:4], fields[2:-1:4], fields[3:-1:4], strict=True)
        }

    def our_verdicts(self, sources: Sources) -> Verdicts:
        """Judge the same paths with our rules. As in a scan, all below an ignored directory is ignored."""
        rules = {path: ignore.parse(text) for path, text in sources.items()}
        at_root = [rules[path] for path in (EXCLUDES_FILE, INFO_EXCLUDE, b".gitignore") if path in rules]
        stacks: dict[bytes, ignore.Stack] = {b"": ignore.Stack.root(*at_root)}
        verdicts: Verdicts = {}
        for path in self.paths:
            parent, _, name = path.rpartition(b"/")
            is_dir = path in self.dirs
            verdicts[path] = verdicts.get(parent) or stacks[parent].verdict(name, is_dir)
            if is_dir:
                stacks[path] = stacks[parent].enter(name)
                if path + b"/.gitignore" in rules:
                    stacks[path] = stacks[path].add(rules[path + b"/.gitignore"])
        return verdicts


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    return Git(tmp_path_factory.mktemp("worktree"))


def differences(git: Git, sources: Sources) -> list[tuple[bytes, bool | None, bool | None]]:
    theirs, ours = git.verdicts(sources, git.paths), git.our_verdicts(sources)
    assert theirs.keys() == ours.keys()
    return [(path, theirs[path], ours[path]) for path in git.paths if theirs[path] is not ours[path]]


ATOMS = [
    b"a", b"b", b"c", b"foo", b"bar", b"ab", b"abc", b".", b"o", b"x", b" ", b"\\ ", b"\t", b"#", b"!", b"-",
    b"\xff", b"*", b"*", b"*", b"?", b"**", b"***", b"/", b"/", b"/", b"/**/", b"**/", b"/**", b"\\", b"\\*",
    b"\\a", b"\\/", b"[", b"]", b"[a]", b"[ab]", b"[a-c]", b"[!a]", b"[^b]", b"[]a]", b"[!]a]", b"[a-]",
    b"[--a]", b"[b-a]", b"[\\a]", b"[a/b]", b"[[:alpha:]]", b"[![:alpha:]]", b"[[:digit:][:punct:]]",
    b"[[:nope:]]", b"[[:]", b"[[::]]", b"[[:a]", b"[[:alpha:]-c]", b"[\\", b"[a-\\c]", b"[^]",
]  # fmt: skip
TYPICAL = [
    b"a", b"foo", b"*.c", b"foo*", b"/a", b"/foo/", b"a/b", b"a/**", b"**/foo", b"a/**/b", b"*/a", b"/*/*",
    b"b/", b"**/a/b", b"a/*", b"foo/*/bar", b"*", b"/*", b"foo**/bar", b"a/b/**/foo", b"**/b/**", b"?", b"**",
    b"/**/", b"a*c",
]  # fmt: skip
ENDS = [b"", b"", b"", b"", b"/", b"//", b" ", b"\\ ", b"\r", b"\r\r", b"\t", b"  "]


def draw_line(draw: random.Random) -> bytes:
    negation = b"!" if draw.random() < 0.3 else b""
    if draw.random() < 0.5:
        return negation + draw.choice(TYPICAL) + draw.choice(ENDS[:6])
    return negation + b"".join(draw.choices(ATOMS, k=draw.randint(1, 6))) + draw.choice(ENDS)


def draw_text(draw: random.Random) -> bytes:
    bom = b"\xef\xbb\xbf" if draw.random() < 0.1 else b""
    lines = [draw_line(draw) for _ in range(draw.randint(1, 6))]
    return bom + b"\n".join(lines) + draw.choice([b"", b"\n"])


def draw_sources(draw: random.Random) -> Sources:
    places = [b".gitignore", EXCLUDES_FILE, INFO_EXCLUDE, *NESTED]
    return {place: draw_text(draw) for place in draw.sample(places, k=draw.randint(1, 4))}


@pytest.mark.parametrize("seed", range(8))
def test_random_rules_mean_what_they_mean_to_git(git: Git, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        sources = draw_sources(draw)
        assert differences(git, sources) == [], sources


@pytest.mark.parametrize("seed", range(8))
def test_a_single_random_pattern_means_what_it_means_to_git(git: Git, seed: int) -> None:
    """One pattern at a time, so that none hides another."""
    draw = random.Random(seed)
    for _ in range(60):
        sources = {b".gitignore": draw_line(draw)}
        assert differences(git, sources) == [], sources


@pytest.mark.parametrize(
    "name",
    [
        "alnum",
        "alpha",
        "blank",
        "cntrl",
        "digit",
        "graph",
        "lower",
        "print",
        "punct",
        "space",
        "upper",
        "xdigit",
    ],
)
def test_a_posix_class_has_the_bytes_it_has_in_git(git: Git, name: str) -> None:
    text = b"a[[:%b:]]b" % name.encode()
    names = [b"a%cb" % byte for byte in range(1, 256) if byte != ord("/")]
    theirs = git.verdicts({b".gitignore": text}, names)

    stack = ignore.Stack.root(ignore.parse(text))
    assert {entry: stack.verdict(entry, False) for entry in names} == theirs


def test_the_comparison_sees_a_rule_that_is_read_wrongly(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = ignore.parse
    monkeypatch.setattr(ignore, "parse", lambda text: parse(text.replace(b"foo/", b"foo")))

    assert (b"b/foo", None, True) in differences(git, {b".gitignore": b"foo/"})
