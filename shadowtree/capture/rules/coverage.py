"""What a snapshot covers: the rules in force inside each directory, applied in this order.

    1. `.shadowtreeignore` excludes, and its `!` rules bring back anything
    2. what a git index tracks is covered, whatever comes below
    3. what git would ignore is left out
    4. dependency and cache directories are left out
    5. files over `max_file_size` are left out

A `Policy` holds the rules inside one directory, inherited from its parent. Its keys change exactly when a
verdict could: no rule needs matching for a cached listing with the same keys, so the matchers are only built
when they are needed. Policies are made from the disk by `sources`, and from a recorded tree by
`recorded_tree`, which must know whether a missing path was absent or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

from shadowtree.base.paths import ROOT, RelPath, join
from shadowtree.capture.directories import EXCLUDED, FORCED, HEAVY, NORMAL, OWN_EXCLUDED
from shadowtree.capture.rules.git_repository import Repository, Tracked, read_tracked

# The verdicts on a file.
LEFT_OUT = 0
COVERED = 1
"""Covered unless it is too large."""
TRACKED = 2
"""Covered because an index tracks it."""
BROUGHT_BACK = 3
"""Covered because a `!` rule says so."""

_SMALL_RULES = 4096
"""A file up to this size reaches no limit, so it need not be parsed to check that."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.capture.facts import RootRules
    from shadowtree.capture.rules.gitignore import Rules, Stack


@lru_cache(maxsize=4096)
def _parse(text: bytes) -> Rules:
    # Imported only when a name must be judged: an unchanged directory needs no rules.
    from shadowtree.capture.rules.gitignore import parse

    return parse(text)


def count_left_out(text: bytes) -> int:
    """Return how many lines of a file of rules are beyond the limits of a matcher."""
    return _parse(text).left_out if len(text) > _SMALL_RULES else 0


class TrackedNames:
    """The names that one repository's index tracks; read when first needed."""

    def __init__(self, repository: Repository, *, outer: bytes, base: RelPath) -> None:
        self.repository = repository
        self._outer = outer
        """Where the worktree is in a repository around it, with a slash at the end; empty at its top."""
        self._base = base
        """Where the top of a repository inside the worktree is."""
        self.digest = b""
        """Identifies the set of names, without reading the index."""
        self.is_new = True
        """Whether the names may be others than at the last recorded scan."""

    @cached_property
    def tracked(self) -> Tracked:
        """The names, by their paths in the repository."""
        return read_tracked(self.repository)

    def place_of(self, path: RelPath) -> bytes:
        """Return the path in the repository for a path in the worktree."""
        if self._base:
            return path[len(self._base) + 1 :]
        return self._outer + path if path else self._outer.rstrip(b"/")


class Policy:
    """The rules inside one directory."""

    def __init__(
        self,
        above: Policy | None,
        name: bytes,
        mode: int,
        *,
        ignore_text: bytes | None = None,
        exclude_text: bytes | None = None,
        index: TrackedNames | None = None,
    ) -> None:
        self.above = above
        self.name = name
        self.mode = mode
        self.ignore_text = ignore_text
        self.exclude_text = exclude_text
        self._matchers: tuple[Stack, Stack] | None = None
        """The rules of `.shadowtreeignore` and those of git, built when a name must be judged."""
        self._root_rules: RootRules | None = None
        self.path: RelPath
        self.heavy: frozenset[bytes]
        self.indexes: tuple[TrackedNames, ...]
        self.tracked_key: bytes
        self.rules_key: bytes
        if above is None:
            return
        self.path = join(above.path, name)
        self.heavy = above.heavy
        self.indexes = above.indexes if index is None else (*above.indexes, index)
        self.tracked_key = above.tracked_key if index is None else _digest(above.tracked_key, index.digest)
        self.rules_key = above.rules_key
        if mode != above.mode or ignore_text is not None or exclude_text is not None:
            self.rules_key = _digest(above.rules_key, b"%d" % mode, ignore_text, exclude_text)

    @classmethod
    def root(
        cls,
        rules: RootRules,
        ignore_text: bytes | None,
        *,
        indexes: Sequence[TrackedNames] = (),
        purged_key: bytes = b"",
    ) -> Policy:
        """Make the rules at the root of a worktree; `indexes` are those of every repository around it."""
        policy = cls(None, b"", NORMAL, ignore_text=ignore_text, exclude_text=rules.exclude_text)
        policy.path = ROOT
        policy.heavy = frozenset(rules.heavy_dirs)
        policy.indexes = tuple(indexes)
        policy.tracked_key = _digest(*[index.digest for index in indexes])
        policy.rules_key = _digest(
            rules.own_text,
            rules.global_text,
            *[part for pair in rules.around for part in pair],
            rules.exclude_text,
            ignore_text,
            b"\0".join(sorted(policy.heavy)),
            b"%d" % rules.max_file_size,
        )
        if purged_key:
            # Tombstones and the limit of untracked files change what is covered, as rules do.
            policy.rules_key = _digest(policy.rules_key, purged_key)
        policy._root_rules = rules
        return policy

    def judge_file(self, name: bytes) -> int:
        """Return the verdict on a file or link in this directory."""
        own, git = self._matchers or self.build_matchers()
        verdict = own.verdict(name, False)
        if verdict is None and self.mode in (OWN_EXCLUDED, FORCED):
            verdict = self.mode == OWN_EXCLUDED
        if verdict is not None:
            return LEFT_OUT if verdict else BROUGHT_BACK
        if self.mode in (EXCLUDED, HEAVY) or git.verdict(name, False):
            return TRACKED if self.is_tracked(name) else LEFT_OUT
        return COVERED

    def judge_directory(self, name: bytes) -> tuple[int, bool]:
        """Return the rules that a directory in this one is under, and whether to enter it at all."""
        own, git = self._matchers or self.build_matchers()
        verdict = own.verdict(name, True)
        if verdict is False or (verdict is None and self.mode == FORCED):
            return FORCED, True
        may_return = own.may_include_below() and own.enter(name).may_include_below()
        if verdict or self.mode == OWN_EXCLUDED:
            return OWN_EXCLUDED, may_return
        if name in self.heavy or self.mode == HEAVY:
            path = join(self.path, name)
            return HEAVY, may_return or self.tracks_below(path)
        if self.mode == EXCLUDED or git.verdict(name, True):
            # Entered in any case: a repository in it would track files of its own.
            return EXCLUDED, True
        return NORMAL, True

    @property
    def has_new_index(self) -> bool:
        """Whether an index may track other names than at the last recorded scan."""
        return any(index.is_new for index in self.indexes)

    def find_missing(self, names: set[bytes]) -> list[bytes]:
        """List the paths that indexes track in or below this directory and that do not exist.

        `names` are the names that exist; a directory among them lists its own missing paths. Only paths that
        the rules would leave out are listed: for all others, the rules show that they were absent.
        """
        missing: set[bytes] = set()
        below: dict[bytes, Policy] = {b"": self}
        for index in self.indexes:
            place = index.place_of(self.path)
            start = len(place) + 1 if place else 0
            for name, is_directory in index.tracked.children(place):
                if name in names:
                    continue
                full = place + b"/" + name if place else name
                paths = index.tracked.below(full) if is_directory else [full]
                missing.update(path[start:] for path in paths if _would_leave_out(path[start:], below))
        return sorted(missing)

    def tracks_below(self, path: RelPath) -> bool:
        """Return whether an index tracks anything below a directory in this one."""
        return any(index.tracked.has_below(index.place_of(path)) for index in self.indexes)

    def is_tracked(self, name: bytes) -> bool:
        """Return whether an index tracks a file in this directory."""
        path = join(self.path, name)
        return any(index.tracked.has(index.place_of(path)) for index in self.indexes)

    def build_matchers(self) -> tuple[Stack, Stack]:
        """Build the matchers for `.shadowtreeignore` and for git's rules, before any name is judged.

        They are made from those of the nearest directory above that has them, in a loop, for any depth.
        """
        missing = [self]
        while (above := missing[-1].above) is not None and above._matchers is None:
            missing.append(above)
        for policy in reversed(missing):
            above = policy.above
            matchers = policy._root_matchers() if above is None else policy._enter_from(above)
            policy._matchers = matchers
        return matchers

    def _enter_from(self, above: Policy) -> tuple[Stack, Stack]:
        assert above._matchers is not None
        own, git = above._matchers
        git = git.enter(self.name)
        for text in (self.exclude_text, self.ignore_text):
            if text:
                git = git.add(_parse(text))
        return own.enter(self.name), git

    def _root_matchers(self) -> tuple[Stack, Stack]:
        from shadowtree.capture.rules.gitignore import Stack

        rules = self._root_rules
        assert rules is not None
        git = Stack.root(_parse(rules.global_text), _parse(self.exclude_text or b""))
        for name, text in rules.around:
            git = git.add(_parse(text)).enter(name)
        return Stack.root(_parse(rules.own_text)), git.add(_parse(self.ignore_text or b""))


def _would_leave_out(path: bytes, below: dict[bytes, Policy]) -> bool:
    """Return whether the rules would leave out a file if no index tracked it.

    `below` holds policies by path, at first only that of the directory where `path` starts. Those on the way
    are added, because a sparse checkout lacks many files in few directories.
    """
    directory, _, name = path.rpartition(b"/")
    if directory not in below:
        policy, place = below[b""], b""
        for part in directory.split(b"/"):
            place = place + b"/" + part if place else part
            if place not in below:
                below[place] = Policy(policy, part, policy.judge_directory(part)[0])
            policy = below[place]
    return below[directory].judge_file(name) in (LEFT_OUT, TRACKED)


def _digest(*parts: bytes | None) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        # The length separates neighbours; an absent text differs from an empty one.
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()
