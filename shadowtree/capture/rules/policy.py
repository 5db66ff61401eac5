"""What a snapshot covers: the rules in force inside each directory, in the contract's order of decision.

    1. `.shadowtreeignore` excludes, and its `!` rules bring back anything
    2. what a git index tracks is covered, whatever comes below
    3. what git would ignore is left out
    4. dependency and cache directories are left out
    5. files over `max_file_size` are left out

A `Policy` is the rules inside one directory, inherited from the one above. Its keys change exactly when a
verdict could: a cached listing with the same keys needs no rule to be matched again, so the matchers are
only built where they are asked for. Policies are made from the disk by a scan, and from a recorded tree by
`patch`, which has to know whether a path that is not there was absent or left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b

from shadowtree.base.paths import ROOT, RelPath, join
from shadowtree.capture.directories import EXCLUDED, FORCED, HEAVY, NORMAL, OWN_EXCLUDED
from shadowtree.capture.rules.git_repository import Repository, Tracked, index_stamp, read_tracked

# The verdicts on a file.
LEFT_OUT = 0
COVERED = 1
"""Covered unless it is too large."""
TRACKED = 2
"""Covered because an index tracks it."""
BROUGHT_BACK = 3
"""Covered because a `!` rule says so."""

_SMALL_RULES = 4096
"""No file of this size reaches any limit, so it need not be parsed to know."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.capture.rules.gitignore import Rules, Stack


@lru_cache(maxsize=4096)
def _parse(text: bytes) -> Rules:
    # Imported when a name has to be judged: where nothing came or went, nobody asks.
    from shadowtree.capture.rules.gitignore import parse

    return parse(text)


def count_left_out(text: bytes) -> int:
    """Tell how many lines of a file of rules are beyond what a matcher takes."""
    return _parse(text).left_out if len(text) > _SMALL_RULES else 0


class TrackedNames:
    """The names that one repository's index tracks, as paths of the worktree; read when first asked for."""

    def __init__(self, repository: Repository, *, outer: bytes, base: RelPath) -> None:
        self._repository = repository
        self._outer = outer
        """Where the worktree is in a repository around it, with a slash at the end; empty at its top."""
        self._base = base
        """Where the top of a repository inside the worktree is."""

    @property
    def key(self) -> bytes:
        """Name the index."""
        return self._repository.git_dir

    @cached_property
    def stamp(self) -> tuple[int, ...] | None:
        """Tell cheaply whether the index changed."""
        return index_stamp(self._repository)

    @cached_property
    def _tracked(self) -> Tracked:
        return read_tracked(self._repository)

    @property
    def problem(self) -> str | None:
        """Say why the index could not be read."""
        return self._tracked.problem

    @property
    def digest(self) -> bytes:
        """Tell whether other names are tracked."""
        return self._tracked.digest

    def place_of(self, path: RelPath) -> bytes:
        """Give the path in the repository of a path of the worktree."""
        return path[len(self._base) + 1 :] if self._base else self._outer + path

    def children(self, path: RelPath) -> Iterator[tuple[bytes, bool]]:
        """Give each name directly in a directory with something tracked at it, or below it (True)."""
        return self._tracked.children(self.place_of(path) if path else self._outer.rstrip(b"/"))

    def below(self, path: RelPath) -> list[bytes]:
        """List what is tracked below a directory, relative to it."""
        place = self.place_of(path)
        return [name[len(place) + 1 :] for name in self._tracked.below(place)]

    def has(self, path: RelPath) -> bool:
        """Tell whether the index tracks this file."""
        return self._tracked.has(self.place_of(path))

    def has_below(self, path: RelPath) -> bool:
        """Tell whether the index tracks any file below this directory."""
        return self._tracked.has_below(self.place_of(path))


class Policy:
    """The rules inside one directory."""

    __slots__ = (
        "_git",
        "_own",
        "_sources",
        "above",
        "exclude_text",
        "heavy",
        "ignore_text",
        "indexes",
        "mode",
        "name",
        "path",
        "rules_key",
        "tracked_key",
    )

    def __init__(
        self,
        above: Policy | None,
        name: bytes,
        mode: int,
        *,
        ignore_text: bytes | None = None,
        exclude_text: bytes | None = None,
        index: TrackedNames | None = None,
        index_digest: bytes = b"",
    ) -> None:
        self.above = above
        self.name = name
        self.mode = mode
        self.ignore_text = ignore_text
        self.exclude_text = exclude_text
        self._git: Stack | None = None
        self._own: Stack | None = None
        self._sources: tuple[bytes, bytes, list[tuple[bytes, bytes]]] | None = None
        """Of the root: the texts of the rules that come from outside the worktree."""
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
        self.tracked_key = above.tracked_key if index is None else _digest(above.tracked_key, index_digest)
        self.rules_key = above.rules_key
        if mode != above.mode or ignore_text is not None or exclude_text is not None:
            self.rules_key = _digest(above.rules_key, b"%d" % mode, ignore_text, exclude_text)

    @classmethod
    def root(
        cls,
        *,
        own_text: bytes,
        global_text: bytes,
        around: list[tuple[bytes, bytes]],
        exclude_text: bytes | None,
        ignore_text: bytes | None,
        heavy_dirs: frozenset[bytes],
        max_file_size: int,
        indexes: Sequence[tuple[TrackedNames, bytes]] = (),
        purged_key: bytes = b"",
    ) -> Policy:
        """Make the rules at the root of a worktree.

        `around` are the directories from the top of the repository around the worktree down to the worktree,
        the last one left out: for each the name of the next one below, and the text of its `.gitignore`.
        `indexes` are those of every repository around it, each with its digest.
        """
        policy = cls(None, b"", NORMAL, ignore_text=ignore_text, exclude_text=exclude_text)
        policy.path = ROOT
        policy.heavy = heavy_dirs
        policy.indexes = tuple([index for index, _ in indexes])
        policy.tracked_key = _digest(*[digest for _, digest in indexes])
        flat = [part for pair in around for part in pair]
        heavy_key = b"\0".join(sorted(heavy_dirs))
        policy.rules_key = _digest(
            own_text, global_text, *flat, exclude_text, ignore_text, heavy_key, b"%d" % max_file_size
        )
        if purged_key:
            # What was purged is left out like what a rule leaves out, so that a cached listing knows of it.
            policy.rules_key = _digest(policy.rules_key, purged_key)
        policy._sources = (own_text, global_text, around)
        return policy

    def judge_file(self, name: bytes) -> int:
        """Decide on a file or link in this directory."""
        own = self._own_verdict(name, is_dir=False)
        if own is not None:
            return LEFT_OUT if own else BROUGHT_BACK
        if self.mode in (EXCLUDED, HEAVY) or self.git.verdict(name, False):
            return TRACKED if self.is_tracked(name) else LEFT_OUT
        return COVERED

    def judge_directory(self, name: bytes) -> tuple[int, bool]:
        """Decide on a directory in this one: the rules it is under, and whether to look into it at all."""
        own = self._own_verdict(name, is_dir=True)
        if own is False:
            return FORCED, True
        may_return = self.own.may_include_below() and self.own.enter(name).may_include_below()
        if own:
            return OWN_EXCLUDED, may_return
        if name in self.heavy:
            return HEAVY, may_return or self._has_tracked_below(name)
        if self.mode == HEAVY:
            return HEAVY, may_return or self._has_tracked_below(name)
        if self.mode == EXCLUDED or self.git.verdict(name, True):
            # Looked into in any case: a repository in it would track files of its own.
            return EXCLUDED, True
        return NORMAL, True

    def find_missing(self, names: set[bytes]) -> list[bytes]:
        """List what indexes track in or below this directory, whose `names` are given, but is not there.

        Only what the rules alone would leave out: of everything else they say that it was absent. Whether a
        directory that is there lacks something is that directory's own affair.
        """
        missing: set[bytes] = set()
        below: dict[bytes, Policy] = {}
        for index in self.indexes:
            for name, is_directory in index.children(self.path):
                if name in names:
                    continue
                path = join(self.path, name)
                paths = [name + b"/" + rest for rest in index.below(path)] if is_directory else [name]
                missing.update(path for path in paths if self._would_leave_out(path, below))
        return sorted(missing)

    def _would_leave_out(self, path: bytes, below: dict[bytes, Policy]) -> bool:
        """Tell whether the rules would leave out a file below this directory if no index tracked it.

        `below` collects the rules of directories on the way: a sparse checkout lacks many files of few.
        """
        directory, _, name = path.rpartition(b"/")
        if directory and directory not in below:
            policy, place = self, b""
            for part in directory.split(b"/"):
                place = place + b"/" + part if place else part
                if place not in below:
                    below[place] = Policy(policy, part, policy.judge_directory(part)[0])
                policy = below[place]
        policy = below[directory] if directory else self
        return policy.judge_file(name) in (LEFT_OUT, TRACKED)

    def is_tracked(self, name: bytes) -> bool:
        """Tell whether an index tracks a file in this directory."""
        path = join(self.path, name)
        return any(index.has(path) for index in self.indexes)

    def _has_tracked_below(self, name: bytes) -> bool:
        path = join(self.path, name)
        return any(index.has_below(path) for index in self.indexes)

    def _own_verdict(self, name: bytes, *, is_dir: bool) -> bool | None:
        verdict = self.own.verdict(name, is_dir)
        if verdict is None and self.mode in (OWN_EXCLUDED, FORCED):
            return self.mode == OWN_EXCLUDED
        return verdict

    @property
    def own(self) -> Stack:
        """The rules of `.shadowtreeignore` inside this directory."""
        if self._own is None:
            self._build()
        assert self._own is not None
        return self._own

    @property
    def git(self) -> Stack:
        """Git's rules inside this directory."""
        if self._git is None:
            self._build()
        assert self._git is not None
        return self._git

    def _build(self) -> None:
        """Build the matchers, from the nearest directory above that has some; a loop, for any depth."""
        missing: list[Policy] = []
        policy: Policy | None = self
        while policy is not None and policy._git is None:
            missing.append(policy)
            policy = policy.above
        for policy in reversed(missing):
            if policy.above is None:
                policy._build_root()
            else:
                policy._build_below(policy.above)

    def _build_root(self) -> None:
        from shadowtree.capture.rules.gitignore import Stack

        assert self._sources is not None
        own_text, global_text, around = self._sources
        self._own = Stack.root(_parse(own_text))
        stack = Stack.root(_parse(global_text), _parse(self.exclude_text or b""))
        for name, text in around:
            stack = stack.add(_parse(text)).enter(name)
        self._git = stack.add(_parse(self.ignore_text or b""))

    def _build_below(self, above: Policy) -> None:
        assert above._git is not None
        assert above._own is not None
        self._own = above._own.enter(self.name)
        stack = above._git.enter(self.name)
        if self.exclude_text:
            stack = stack.add(_parse(self.exclude_text))
        if self.ignore_text:
            stack = stack.add(_parse(self.ignore_text))
        self._git = stack


def _digest(*parts: bytes | None) -> bytes:
    digest = blake2b(digest_size=16)
    for part in parts:
        # The length keeps neighbours apart; an absent text differs from an empty one.
        digest.update(b"-" if part is None else b"%d:" % len(part))
        digest.update(part or b"")
    return digest.digest()
