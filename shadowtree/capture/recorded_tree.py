"""Read recorded trees with their facts: the state of a path then, and the changes from one tree to another.

Present, absent and unknown are distinguished here (invariant 7). A path that the tree does not hold was
absent if the rules recorded with the tree would have covered it. If they left it out, or if it is listed as
skipped, its state is unknown.

Comparing two trees skips equal subtrees. A path that is unknown in one of the two is never in a patch; it is
listed as skipped instead.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from functools import cached_property

from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    Change,
    PathState,
    RelPath,
    Unknown,
    is_own_temporary,
    join,
    parent_of,
)
from shadowtree.capture.directories import GIT_IGNORE, ID_SIZE, STAMP_SIZE, Directory, join_ids, leaves_out
from shadowtree.capture.facts import (
    DIRECTORY_BLOB,
    EXCLUDE_BLOB,
    HOLDS_STORES,
    IGNORE_BLOB,
    RULES_BLOB,
    SUBTREE_PREFIX,
    DirectoryFacts,
    decode_directory,
    decode_rules,
)
from shadowtree.capture.rules.coverage import LEFT_OUT, Policy
from shadowtree.results.messages import Patch, make_patch
from shadowtree.store.git_format import EMPTY_TREE, MODE_EXEC, MODE_LINK, MODE_TREE, TreeEntry
from shadowtree.store.objects import Objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer
    from shadowtree.capture.scan import Scan

LEFT_OUT_THEN = "an ignore rule excluded it"


class RecordedDirectory:
    """One directory of a recorded tree. It may not have existed: its paths may still be absent or unknown."""

    def __init__(self, objects: Objects, tree: bytes | None, facts: bytes | None) -> None:
        self._objects = objects
        self.tree = tree
        self.facts_id = facts
        self.files: dict[bytes, TreeEntry] = {}
        """The files and links of this directory, by name."""
        self._trees: dict[bytes, bytes] = {}
        """The ids of the directories that the tree has, by name."""
        for entry in () if tree is None or tree == EMPTY_TREE else objects.read_tree(tree):
            if entry.mode == MODE_TREE:
                self._trees[entry.name] = entry.id
            else:
                self.files[entry.name] = entry
        fact_entries = () if facts is None else objects.read_tree(facts)
        self._fact_ids = {entry.name: entry.id for entry in fact_entries}
        self._missing: frozenset[bytes] = frozenset()
        """Paths below here that were tracked and absent, as the directories above recorded them."""
        self.unknown: str | None = None
        """Why the state of everything in here is unknown; None if it is not."""
        self._policy: Policy | None = None
        self._is_left_out = False
        """The rules leave it out; only what an index or a `!` rule names in it is covered."""
        self._children: dict[bytes, RecordedDirectory] = {}

    @property
    def subdirectories(self) -> set[bytes]:
        """The names of the directories in the tree or in the facts."""
        prefix = len(SUBTREE_PREFIX)
        in_facts = [name[prefix:] for name in self._fact_ids if name.startswith(SUBTREE_PREFIX)]
        return {*self._trees, *in_facts}

    def ids_of(self, name: bytes) -> tuple[bytes | None, bytes | None]:
        """Return the tree and facts ids of the directory `name`; equal ids mean that all below is equal."""
        return self._trees.get(name), self._fact_ids.get(SUBTREE_PREFIX + name)

    def enter(self, name: bytes) -> RecordedDirectory:
        """Return the directory `name` in this one, whether or not it existed.

        It inherits the rules from here, or the reason why everything in it is unknown.
        """
        if name in self._children:
            return self._children[name]
        inner = self._children[name] = RecordedDirectory(self._objects, *self.ids_of(name))
        prefix = name + b"/"
        missing = self._missing | self.facts.missing
        inner._missing = frozenset([path[len(prefix) :] for path in missing if path.startswith(prefix)])
        inner.unknown = self.unknown or self.facts.skipped.get(name)
        if inner.unknown is not None:
            return inner
        assert self._policy is not None
        mode, is_entered = self._policy.judge_directory(name)
        if (not is_entered and inner.tree is None) or is_own_temporary(name):
            inner.unknown = LEFT_OUT_THEN
            return inner
        inner._is_left_out = leaves_out(mode)
        exclude_text = inner.read_fact(EXCLUDE_BLOB)
        inner._policy = Policy(
            self._policy, name, mode, ignore_text=inner.read_gitignore(), exclude_text=exclude_text
        )
        return inner

    @property
    def is_there(self) -> bool:
        """Whether the directory existed, by the tree and its facts."""
        return self.tree is not None or self.facts.is_directory

    def state(self, name: bytes, *, as_directory: bool = False) -> Answer:
        """Return the state of a name in here.

        Rules may leave out only files or only directories, so a missing name may depend on `as_directory`.
        """
        entry = self.files.get(name)
        if entry is not None:
            return PathState(self.file_mode(entry), entry.id)
        if any(self.ids_of(name)) and self.enter(name).is_there:
            return DIRECTORY
        if as_directory:
            inner = self.enter(name)
            reason = inner.unknown or (LEFT_OUT_THEN if inner._is_left_out else None)
        else:
            reason = self.why_unknown(name)
        return None if reason is None else Unknown(reason)

    def find(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        """Return the state of a path below here."""
        *above, name = path.split(b"/")
        directory = self
        for part in above:
            directory = directory.enter(part)
        return directory.state(name, as_directory=as_directory)

    def file_mode(self, entry: TreeEntry) -> int:
        """Return the kind and the exact permission bits of a file in this directory, as in `st_mode`."""
        if entry.mode == MODE_LINK:
            return MODE_LINK
        is_executable = entry.mode == MODE_EXEC
        return stat.S_IFREG | self.facts.permissions(entry.name, is_executable=is_executable)

    def why_unknown(self, name: bytes) -> str | None:
        """Return why the state of a file that the tree does not hold is unknown; None if it was absent."""
        if name in self._missing or name in self.facts.missing:
            return None
        if self.unknown is not None:
            return self.unknown
        if is_own_temporary(name):
            return LEFT_OUT_THEN
        if name in self.facts.skipped:
            return self.facts.skipped[name]
        assert self._policy is not None
        return LEFT_OUT_THEN if self._policy.judge_file(name) == LEFT_OUT else None

    @cached_property
    def facts(self) -> DirectoryFacts:
        """The facts of this directory."""
        content = self.read_fact(DIRECTORY_BLOB)
        if content is None:
            return DirectoryFacts()
        return decode_directory(content, (self.facts_id or b"").hex())

    def read_fact(self, name: bytes) -> bytes | None:
        """Read one blob of the facts; return None if it is left out."""
        blob = self._fact_ids.get(name)
        return None if blob is None else self._objects.read(b"blob", blob)

    def read_gitignore(self) -> bytes | None:
        """Read the text of the `.gitignore` that was in force; None if there was none or it was empty."""
        in_force = self.read_fact(IGNORE_BLOB)
        if in_force is None:
            entry = self.files.get(GIT_IGNORE)
            if entry is not None and entry.mode != MODE_LINK:
                in_force = self._objects.read(b"blob", entry.id)
        return in_force or None


def open_recorded(objects: Objects, tree: bytes, facts: bytes) -> RecordedDirectory:
    """Return the root of a recorded tree."""
    root = RecordedDirectory(objects, tree, facts)
    content = root.read_fact(RULES_BLOB)
    assert content is not None, "facts of a root always hold rules"
    root._policy = Policy.root(decode_rules(content, facts.hex()), root.read_gitignore())
    return root


class PathSearch:
    """Searches many trees for one path, and reads shared subtrees once.

    A path that ends with a slash is that of a directory.
    """

    def __init__(self, objects: Objects, path: RelPath) -> None:
        self._objects = objects
        self._is_directory = path.endswith(b"/")
        self._names = path.removesuffix(b"/").split(b"/")
        self._without: set[tuple[int, bytes]] = set()
        """Subtrees known not to lead to the path, each with its depth."""

    def is_in(self, tree: bytes) -> bool:
        """Return whether a tree covers a file at the path, or a directory with files."""
        passed = []
        for depth, name in enumerate(self._names):
            if (depth, tree) in self._without:
                break
            passed.append((depth, tree))
            found = next((entry for entry in self._objects.read_tree(tree) if entry.name == name), None)
            is_last = depth == len(self._names) - 1
            if found is None or (found.mode == MODE_TREE) != (self._is_directory or not is_last):
                break
            if is_last:
                return True
            tree = found.id
        self._without.update(passed)
        return False


# Two trees


def compare(before: RecordedDirectory, after: RecordedDirectory) -> Patch:
    """Make the patch from `before` to `after`, both roots."""
    assert before.tree is not None, "a root always has a tree"
    return make_patch(before.tree.hex(), list_changes(before, after))


def list_changes(before: RecordedDirectory, after: RecordedDirectory) -> list[Change]:
    """List the changes from `before` to `after`, both roots, sorted by path: files, links and directories.

    A file that is unknown in one of the two is listed with that side unknown; such a directory is not listed.
    """
    changes: list[Change] = []
    waiting: list[tuple[RelPath, RecordedDirectory, RecordedDirectory]] = [(ROOT, before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old.tree == new.tree and old.facts_id == new.facts_id:
            continue
        # A name that one of the two skipped may be known in the other.
        skips = {*old.facts.skipped.items(), *new.facts.skipped.items()}
        skipped = {name for name, reason in skips if name and reason != HOLDS_STORES}
        for name in _names_changed(old, new) | skipped:
            _add(changes, join(path, name), old.state(name), new.state(name))
        for name in old.subdirectories | new.subdirectories:
            if old.ids_of(name) != new.ids_of(name):
                below = join(path, name)
                waiting.append((below, old.enter(name), new.enter(name)))
                if name in old.files or name in new.files:
                    continue
                was, now = old.state(name, as_directory=True), new.state(name, as_directory=True)
                if not isinstance(was, Unknown) and not isinstance(now, Unknown):
                    _add(changes, below, was, now)
    changes.sort(key=lambda change: change.path)
    return changes


def _names_changed(old: RecordedDirectory, new: RecordedDirectory) -> set[bytes]:
    """Return the files whose entries differ, or all files if the permission bits in the facts differ."""
    mine, theirs = old.facts, new.facts
    if (mine.modes, mine.exec_mode, mine.plain_mode) != (theirs.modes, theirs.exec_mode, theirs.plain_mode):
        return old.files.keys() | new.files.keys()
    before = {(entry.name, entry.mode, entry.id) for entry in old.files.values()}
    after = {(entry.name, entry.mode, entry.id) for entry in new.files.values()}
    return {name for name, _, _ in before ^ after}


def _add(changes: list[Change], path: RelPath, old: Answer, new: Answer) -> None:
    if old != new and not (isinstance(old, Unknown) and isinstance(new, Unknown)):
        changes.append(Change(path, old, new))


# The last tree and a scan
#
# Most messages only edit existing files. A scan on top of a census has the directories of these files twice,
# as recorded and as they are now. If both have the same names, comparing the rows is enough:
#
#     known    a.py 1f…  b.py 77…  c.py 30…
#     now      a.py 1f…  b.py e2…  c.py 30…      ──▶ b.py changed, from 77… to e2…
#
# If a name was added or removed anywhere, the meaning depends on the rules, so the trees are compared.


def list_rewritten(scan: Scan, tree: bytes, facts: bytes) -> list[Change] | None:
    """List the changes since a tree was recorded, by path; return None if the trees must be compared.

    The trees of the scan must have been built.
    """
    root = scan.known(ROOT)
    if root is None or (root.tree, root.facts) != (tree, facts) or scan.gone:
        return None
    changed = scan.changed_directories()
    if not all(_is_whole(path, scan) for path in {parent_of(directory.path) for directory in changed}):
        return None
    changes: list[Change] = []
    for directory in changed:
        known = scan.known(directory.path)
        if known is None or not _is_alike(known, directory):
            return None
        changes += _compare_files(known, directory)
    changes.sort(key=lambda change: change.path)
    return changes


def _is_alike(known: Directory, now: Directory) -> bool:
    """Return whether two views of a directory differ in nothing but their files' contents and modes."""
    return (
        known.names == now.names
        and known.subdirectories == now.subdirectories
        and known.skipped == now.skipped
        and known.missing == now.missing
        and (known.tree is None) == (now.tree is None)
    )


def _is_whole(path: RelPath, scan: Scan) -> bool:
    """Return whether a known directory was built from its subdirectories as they are known.

    A cache that lost its newest rows in a power cut, and a census made from it, may mix old and new.
    """
    known = scan.known(path)
    if known is None:
        return False
    below = [scan.known(join(path, name)) for name, _ in reversed(known.subdirectories)]
    return known.below_ids == join_ids(child for child in below if child is not None)


def _compare_files(known: Directory, now: Directory) -> Iterator[Change]:
    """Yield the changes of files whose content or mode differs; both views have the same names."""
    old_ids, new_ids = bytes(known.ids), bytes(now.ids)
    old_modes, new_modes = known.stats[4::STAMP_SIZE], now.stats[4::STAMP_SIZE]
    if old_ids == new_ids and old_modes == new_modes:
        return
    for row, at in enumerate(range(0, len(new_ids), ID_SIZE)):
        if old_ids[at : at + ID_SIZE] != new_ids[at : at + ID_SIZE] or old_modes[row] != new_modes[row]:
            old, new = known.file_state(row), now.file_state(row)
            if old != new:
                yield Change(join(now.path, now.names[row]), old, new)
