"""Ignore rules: match the entries of a directory with the lines of a `.gitignore`, as git does.

A walker holds one `Stack` for each directory and gets a verdict on each entry from it. No full path is
needed: a pattern is split at its slashes, and entering a directory advances the patterns that match its name
by one segment.

The rules of one file form a tree. A node stands for the segments that have matched so far. It holds the rules
with one segment left, and links to the next nodes. The node behind a `**`, once reached, also applies in all
directories below. A pattern without a slash matches at any depth: it is read as `**/pattern`.

    *.o         root ──**──▶ [*.o]
    /dist       root: [dist]
    a/**/b/*.c  root ──a──▶ ( ) ──**──▶ ( ) ──b──▶ [*.c]

In the source of highest precedence with a matching line, the last such line wins. Names are bytes, and case
matters. No pattern is slow, because nothing backtracks: a piece between two stars stays where it first
matches, and a set of nodes represents all the ways to read a `**`. Lines beyond a limit are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

MAX_FILE_BYTES = 1 << 20
MAX_LINE_BYTES = 4096

_HASH, _SLASH = b"#/"

_BUDGET = 200_000
"""The total cost that the rules of one file may have: 1 for each segment, more for those slow to match."""
_REGEX_COST = 8
"""The cost of each byte of regex. The budget then lasts for about a thousand patterns that need one."""
_DEEP_COST = 40
"""The cost of each `**`, which keeps a node in force in every directory below."""

_Segment = tuple[int, bytes]
"""The pattern of one name: a kind and its text, which for `_REGEX` is a regex."""
_LITERAL, _SUFFIX, _PREFIX, _REGEX, _DEEP = range(5)
_ANY_NAME: _Segment = (_SUFFIX, b"")
_ANY_DEPTH: _Segment = (_DEEP, b"")

_Find = Callable[[bytes], int]
"""Returns the outcome of the last rule that matches a name, or `_NO_MATCH`."""
# An outcome is twice the number of the rule's line, plus one if the rule re-includes. The highest one wins.
_NO_MATCH = -1


class Rules:
    """The compiled rules of one ignore file."""

    def __init__(self) -> None:
        self._root = _Node()
        self._budget = _BUDGET
        self.left_out = 0
        """How many lines are ignored because they are beyond a limit."""

    def _add(self, number: int, line: bytes) -> None:
        pattern = _trim(line)
        negative = pattern.startswith(b"!")
        pattern = pattern[negative:]
        dir_only = pattern.endswith(b"/")
        pattern = pattern.removesuffix(b"/")
        pattern = pattern.removeprefix(b"/") if b"/" in pattern else b"**/" + pattern
        readings = [segments for unglued in _unglue(pattern) if (segments := _split(unglued))]
        self._budget -= sum(map(_cost, readings))
        if self._budget < 0:
            self.left_out += 1
            return
        for *steps, final in readings:
            self._root.grow(steps, negative).finals.append((final, dir_only, 2 * number + negative))

    @cached_property
    def levels(self) -> tuple[_Level, ...]:
        """The rules in force in the directory of the file; empty if there is no rule."""
        root = self._root
        floating = () if root.deep is None else (root.deep,)
        level = _Level((root,) if root.is_useful() else (), floating)
        return (level,) if level.is_alive else ()


def parse(text: bytes) -> Rules:
    """Compile the content of an ignore file. Any content is valid, so this never raises.

    Lines longer than `MAX_LINE_BYTES`, lines beyond `MAX_FILE_BYTES`, and all lines from the first one that
    exceeds a budget are left out and counted. The budget is enough for 100,000 plain names.
    """
    rules = Rules()
    text = text.removeprefix(b"\xef\xbb\xbf")
    if len(text) > MAX_FILE_BYTES:
        end = text.rfind(b"\n", 0, MAX_FILE_BYTES) + 1
        rules.left_out = text.count(b"\n", end) + (not text.endswith(b"\n"))
        text = text[:end]
    for number, line in enumerate(text.split(b"\n")):
        if not line or line[0] == _HASH:
            continue
        if len(line) > MAX_LINE_BYTES or rules._budget < 0:
            rules.left_out += 1
        else:
            rules._add(number, line)
    return rules


class Stack:
    """The rules in force inside one directory. Immutable: entering a directory returns another stack."""

    __slots__ = ("_dir_finds", "_file_finds", "_levels", "_moves")

    def __init__(self, levels: tuple[_Level, ...]) -> None:
        self._levels = levels
        """One per source, the highest precedence first."""
        self._moves = any(level.moves for level in levels)
        self._file_finds = [level.file_finds for level in levels if level.file_finds]
        self._dir_finds = [level.dir_finds for level in levels if level.dir_finds]

    @classmethod
    def root(cls, *sources: Rules) -> Stack:
        """Return the stack at the root of the worktree, for sources with the lowest precedence first."""
        stack = cls(())
        for rules in sources:
            stack = stack.add(rules)
        return stack

    def enter(self, name: bytes) -> Stack:
        """Return the stack inside the directory `name`."""
        if not self._moves:
            return self
        levels: tuple[_Level, ...] = ()
        for level in self._levels:
            inner = level.enter(name)
            if inner.is_alive:
                levels += (inner,)
        return self if levels == self._levels else Stack(levels)

    def add(self, rules: Rules) -> Stack:
        """Return a stack with another source that is based at this directory, with the highest precedence."""
        return Stack(rules.levels + self._levels) if rules.levels else self

    def verdict(self, name: bytes, is_dir: bool) -> bool | None:
        """Judge one entry of this directory: True is ignored, False is re-included, None is not mentioned.

        Only the entry is judged: the walker must know that everything below an ignored directory is ignored.
        A symbolic link is not a directory, whatever it points to.
        """
        for finds in self._dir_finds if is_dir else self._file_finds:
            outcome = _NO_MATCH
            for find in finds:
                found = find(name)
                if found > outcome:
                    outcome = found
            if outcome != _NO_MATCH:
                return not outcome & 1
        return None

    def may_include_below(self) -> bool:
        """Return whether a rule might re-include something in this directory, at any depth.

        False is certain, True is not.
        """
        return any(node.has_negative for level in self._levels for node in level.fixed + level.floating)


class _Level:
    """The rules of one source in force inside one directory."""

    __slots__ = ("dir_finds", "file_finds", "fixed", "floating", "is_alive", "movers", "moves")

    def __init__(self, fixed: tuple[_Node, ...], floating: tuple[_Node, ...]) -> None:
        self.fixed = fixed
        """The nodes in force here alone."""
        self.floating = floating
        """The nodes in force here and below."""
        active = fixed + floating
        self.movers = [node for node in active if node.literals or node.globs]
        self.moves = bool(fixed or self.movers)
        self.is_alive = bool(active)
        finds = [node.finds for node in active if node.finals]
        self.file_finds = [file_find for file_find, _ in finds]
        self.dir_finds = [dir_find for _, dir_find in finds]

    def enter(self, name: bytes) -> _Level:
        reached: list[_Node] = []
        for node in self.movers:
            child = node.literals.get(name)
            if child is not None:
                reached.append(child)
            reached += [child for match, child in node.glob_steps if match(name)]
        fixed = tuple([node for node in reached if node.is_useful()])
        # The nodes behind a `**` that can be reached from here stay in force.
        deep = [node.deep for node in reached if node.deep is not None]
        if deep:
            known = set(self.floating)
            deep = [node for node in deep if node not in known]
        if fixed == self.fixed and not deep:
            return self
        return _Level(fixed, self.floating + tuple(deep))


class _Node:
    """The possible next segments of the patterns whose earlier segments have matched."""

    def __init__(self) -> None:
        self.finals: list[tuple[_Segment, bool, int]] = []
        """The rules with one segment left: that segment, whether it matches only directories, the outcome."""
        self.literals: dict[bytes, _Node] = {}
        """The nodes one plain name further on."""
        self.globs: dict[_Segment, _Node] = {}
        """The nodes one wildcard segment further on."""
        self.deep: _Node | None = None
        """The node behind a `**`."""
        self.has_negative = False
        """Whether a rule of this node, or of one further on, re-includes."""

    def is_useful(self) -> bool:
        """Return whether the node itself can match anything, not only the node behind its `**`."""
        return bool(self.finals or self.literals or self.globs)

    def grow(self, segments: list[_Segment], negative: bool) -> _Node:
        """Return the node at the end of these segments, and create missing nodes on the way."""
        node = self
        node.has_negative |= negative
        for segment in segments:
            node = node._step(segment)
            node.has_negative |= negative
        return node

    def _step(self, segment: _Segment) -> _Node:
        kind, text = segment
        if kind == _DEEP:
            self.deep = self.deep or _Node()
            return self.deep
        if kind == _LITERAL:
            node = self.literals[text] = self.literals.get(text) or _Node()
        else:
            node = self.globs[segment] = self.globs.get(segment) or _Node()
        return node

    # Compiled when first needed: most nodes of a large file are never reached.

    @cached_property
    def finds(self) -> tuple[_Find, _Find]:
        """The function that judges files, and the one that judges directories."""
        for_dirs = [(segment, outcome) for segment, _, outcome in self.finals]
        for_files = [(segment, outcome) for segment, dir_only, outcome in self.finals if not dir_only]
        find = _compile(for_files)
        return find, find if for_files == for_dirs else _compile(for_dirs)

    @cached_property
    def glob_steps(self) -> list[tuple[Callable[[bytes], object], _Node]]:
        """The wildcard segments as functions that match a name, each with its node."""
        return [
            (re.compile(_regex_of(segment) + rb"\Z", re.DOTALL).match, node)
            for segment, node in self.globs.items()
        ]


def _compile(finals: list[tuple[_Segment, int]]) -> _Find:
    """Compile the rules that have one segment left into one function."""
    outcomes: tuple[dict[bytes, int], ...] = ({}, {}, {}, {})
    for (kind, text), outcome in finals:
        outcomes[kind][text] = outcome  # a later line replaces an equal earlier one
    literals, suffixes, prefixes, regexes = outcomes
    suffix_sieve, suffix_lengths = _sieve(suffixes), sorted({len(suffix) for suffix in suffixes})
    prefix_sieve, prefix_lengths = _sieve(prefixes), sorted({len(prefix) for prefix in prefixes})
    # The last line comes first. Each regex ends in an empty group, whose number shows which one matched.
    ordered = sorted(regexes.items(), key=lambda item: item[1], reverse=True)
    match_any = re.compile(b"|".join(regex + rb"\Z()" for regex, _ in ordered), re.DOTALL).match

    def find(name: bytes) -> int:
        best = literals.get(name, _NO_MATCH)
        if name.endswith(suffix_sieve):
            for length in suffix_lengths:
                # If `length` exceeds the name's, this is a shorter end of the name: a match is still right.
                found = suffixes.get(name[len(name) - length :], _NO_MATCH)
                best = found if found > best else best
        if name.startswith(prefix_sieve):
            for length in prefix_lengths:
                found = prefixes.get(name[:length], _NO_MATCH)
                best = found if found > best else best
        if ordered and (match := match_any(name)) is not None:
            best = max(best, ordered[(match.lastindex or 0) - 1][1])
        return best

    return find


def _sieve(affixes: dict[bytes, int]) -> tuple[bytes, ...]:
    """Return affixes for a quick test that most names fail; if there are many, one that every name passes."""
    return tuple(affixes) if len(affixes) <= 50 else (b"",)


def _cost(segments: list[_Segment]) -> int:
    """Weigh a rule by the time it may take to compile and to match."""
    cost = len(segments)
    for segment in segments[:-1]:
        if segment[0] not in (_LITERAL, _DEEP):
            cost += _REGEX_COST * len(_regex_of(segment))
    kind, text = segments[-1]
    if kind == _REGEX:
        cost += _REGEX_COST * len(text)
    # A `**` at the beginning is free: it leads to the same node for all rules.
    return cost + _DEEP_COST * segments[1:].count(_ANY_DEPTH)


def _trim(line: bytes) -> bytes:
    """Remove what git ignores: a carriage return, everything from a NUL on, unescaped spaces at the end."""
    line = line.removesuffix(b"\r").partition(b"\0")[0]
    if not line.endswith(b" "):
        return line
    kept = line.rstrip(b" ")
    backslashes = len(kept) - len(kept.rstrip(b"\\"))
    return kept + b" " if backslashes % 2 else kept


# Compiled by `re` when first used, not at start-up, because few ignore files need it.
_GLUED = rb"(?s)([^*?[\\]*+(?<=[^/]))\*{2,}+(?:/\*{2,}+(?=\\?/|\Z))*(?:(\\?/)(.*))?\Z"


def _unglue(pattern: bytes) -> list[bytes]:
    r"""Return equivalent patterns in which a `**` after a plain beginning is a segment of its own, as to git.

    Git compares the plain beginning of a pattern by itself and matches the rest separately. In `foo**/bar`
    the stars are at the beginning of that rest: `foobar`, `foo/bar` and `foox/y/bar` all match. After another
    wildcard, as in `f?o**/bar`, they count as one `*`.
    """
    glued = re.match(_GLUED, pattern) if b"**" in pattern[1:] else None
    if glued is None:
        return [pattern]
    start, slash, rest = glued.groups()
    if slash is None:
        return [start + b"*", start + b"*/**"]
    deep = start + b"*/**/" + rest
    return [start + rest, deep] if slash == b"/" else [deep]


_PLAIN_SEGMENT = re.compile(rb"([^*?[\\/]++)(?:/|\Z)")
_DEEP_SEGMENT = re.compile(rb"\*{2,}+(\\?/|\Z)")


def _split(pattern: bytes) -> list[_Segment] | None:
    r"""Split a pattern at its slashes; return None if no path can match it.

    A `**` that is not followed by a bare slash matches at least one name: neither `a/**` nor `**\/a` matches
    `a`.
    """
    segments: list[_Segment] = []
    at = 0
    while not segments or pattern[at - 1] == _SLASH:
        if (plain := _PLAIN_SEGMENT.match(pattern, at)) is not None:
            segments.append((_LITERAL, plain[1]))
            at = plain.end()
        elif (deep := _DEEP_SEGMENT.match(pattern, at)) is not None:
            if segments[-1:] != [_ANY_DEPTH]:
                segments.append(_ANY_DEPTH)
            if deep[1] != b"/":
                segments.append(_ANY_NAME)
            at = deep.end()
        else:
            atoms, at = _read_atoms(pattern, at)
            if not atoms:
                return None
            segments.append(_segment(atoms))
    return segments


# An atom is a byte or a wildcard of a segment, represented by the bytes that it accepts.
_STAR = b""  # stands for any number of any bytes
_NAME_BYTES = frozenset(range(1, 256)) - {_SLASH}
_QUESTION_MARK = bytes(sorted(_NAME_BYTES))


def _read_atoms(pattern: bytes, at: int) -> tuple[list[bytes], int]:
    """Read a segment and the slash after it; return its atoms (none if it cannot match) and where it ends."""
    atoms: list[bytes] = []
    while at < len(pattern):
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"\\" and not pattern.startswith(b"/", at):
            if at == len(pattern):
                return [], at
            atoms.append(pattern[at : at + 1])
            at += 1
        elif byte == b"\\" or byte == b"/":
            return atoms, at + (byte == b"\\")
        elif byte == b"[":
            accepted, at = _read_class(pattern, at)
            if not accepted:
                return [], at
            atoms.append(accepted)
        elif byte != b"*":
            atoms.append(_QUESTION_MARK if byte == b"?" else byte)
        elif atoms[-1:] != [_STAR]:
            atoms.append(_STAR)
    return atoms, at


def _ranges(*bounds: bytes) -> frozenset[int]:
    return frozenset(byte for first, last in bounds for byte in range(first, last + 1))


_POSIX_CLASSES = {
    b"alnum:": _ranges(b"09", b"AZ", b"az"),
    b"alpha:": _ranges(b"AZ", b"az"),
    b"blank:": _ranges(b"\t\t", b"  "),
    b"cntrl:": _ranges(b"\x01\x1f", b"\x7f\x7f"),
    b"digit:": _ranges(b"09"),
    b"graph:": _ranges(b"!~"),
    b"lower:": _ranges(b"az"),
    b"print:": _ranges(b" ~"),
    b"punct:": _ranges(b"!/", b":@", b"[`", b"{~"),
    b"space:": _ranges(b"\t\n", b"\r\r", b"  "),  # as git has it: neither vertical tab nor form feed
    b"upper:": _ranges(b"AZ"),
    b"xdigit:": _ranges(b"09", b"AF", b"af"),
}
# A POSIX class by its name and the colon after it, or a byte, or the first and last byte of a range.
_MEMBER = rb"(?s)\[:([^\]]++)(?<=:)\]|\\?(.)(?:-(?!\])\\?(.))?"


def _read_class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Read a bracket expression after its `[`; return the bytes it accepts (none: malformed) and its end."""
    negated = pattern.startswith((b"!", b"^"), at)
    at += negated
    read_member = re.compile(_MEMBER).match
    accepted: set[int] = set()
    first = at
    while at == first or not pattern.startswith(b"]", at):
        member = read_member(pattern, at)
        if member is None:
            return b"", at
        posix, low, high = member.groups()
        if posix is None:
            accepted.update(low, range(low[0], high[0] + 1) if high else b"")
        elif posix in _POSIX_CLASSES:
            accepted |= _POSIX_CLASSES[posix]
        else:
            return b"", at
        at = member.end()
    return bytes(sorted(_NAME_BYTES - accepted if negated else _NAME_BYTES & accepted)), at + 1


def _segment(atoms: list[bytes]) -> _Segment:
    """Return a segment as the kind that is matched fastest."""
    stars = atoms.count(_STAR)
    if stars <= 1 and all(len(atom) <= 1 for atom in atoms):
        text = b"".join(atoms)
        if not stars:
            return _LITERAL, text
        if atoms[0] == _STAR:
            return _SUFFIX, text
        if atoms[-1] == _STAR:
            return _PREFIX, text
    return _REGEX, _regex(atoms)


def _regex(atoms: list[bytes]) -> bytes:
    r"""Write a segment as a regex that does not backtrack.

    A piece between two stars stays where it first matches, which leaves the most for the pieces after it. The
    last piece must be at the end, so it is compared by a lookbehind.

        a*b*c[de]  →  a(?>.*?b).{2}.*+(?<=c[\x64\x65])
    """
    pieces: list[list[bytes]] = [[]]
    for atom in atoms:
        if atom == _STAR:
            pieces.append([])
        else:
            pieces[-1].append(_byte_regex(atom))
    head, *middle = map(b"".join, pieces)
    if not middle:
        return head
    tail = middle.pop()
    middle = [b"(?>.*?%b)" % piece for piece in middle]
    return head + b"".join(middle) + b".{%d}.*+(?<=%b)" % (len(pieces[-1]), tail)


def _byte_regex(atom: bytes) -> bytes:
    if len(atom) == 1:
        return re.escape(atom)
    if atom == _QUESTION_MARK:
        return b"."
    is_long = len(atom) > 128
    members = b"".join(b"\\x%02x" % byte for byte in (_NAME_BYTES - set(atom) if is_long else atom))
    return b"[%b%b]" % (b"^" if is_long else b"", members)


def _regex_of(segment: _Segment) -> bytes:
    kind, text = segment
    if kind == _REGEX:
        return text
    atoms = [text[at : at + 1] for at in range(len(text))]
    return _regex([_STAR, *atoms] if kind == _SUFFIX else [*atoms, _STAR])
