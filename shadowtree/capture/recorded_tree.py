"""A recorded tree read together with its facts: what a path was then, and what changed from one to another.

Present, absent and unknown are told apart here (invariant 7). A path that the tree does not hold was absent
if the rules recorded beside the tree would have covered it; if they left it out, or if it is listed as
skipped, nothing is known of it.

Two trees are compared by what differs: equal subtrees are passed over. A path of which one of the two can say
nothing is never in a patch; it is listed as skipped instead.
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
    from_text,
    is_own_temporary,
    join,
    parent_of,
)
from shadowtree.capture.directories import (
    FORCED,
    GIT_IGNORE,
    ID_SIZE,
    NORMAL,
    STAMP_SIZE,
    Directory,
    join_ids,
)
from shadowtree.capture.facts import (
    DIRECTORY_BLOB,
    EXCLUDE_BLOB,
    IGNORE_BLOB,
    RULES_BLOB,
    SUBTREE_PREFIX,
    DirectoryFacts,
    decode_directory,
    decode_rules,
)
from shadowtree.capture.rules.policy import LEFT_OUT, Policy
from shadowtree.results.messages import ChangedPath, FileDiff, Patch, make_patch
from shadowtree.store.git_format import EMPTY_TREE, MODE_EXEC, MODE_LINK, MODE_TREE, TreeEntry
from shadowtree.store.objects import Objects, TooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer
    from shadowtree.capture.scan import Scan

LEFT_OUT_THEN = "the rules left it out"


class RecordedDirectory:
    """One directory of a recorded tree; it may not have existed, and still knows what its absence means."""

    def __init__(
        self,
        objects: Objects,
        tree: bytes | None,
        facts: bytes | None,
        above: RecordedDirectory | None = None,
        name: bytes = b"",
    ) -> None:
        self._objects = objects
        self.tree = tree
        self.facts_id = facts
        self._name = name
        self._missing: frozenset[bytes] = frozenset()
        """Paths below here that were tracked and absent, as a directory above recorded them."""
        self.unknown: str | None = None
        """Why nothing is known of anything in here."""
        self._policy: Policy | None = None
        self._is_left_out = False
        """The rules leave it out; only what an index tracks in it is covered."""
        self._children: dict[bytes, RecordedDirectory] = {}
        if above is None:
            self._policy = self._root_policy()
        else:
            self._inherit(above)

    @cached_property
    def files(self) -> dict[bytes, TreeEntry]:
        """The files and links of this directory, by name."""
        return {name: entry for name, entry in self._entries.items() if entry.mode != MODE_TREE}

    @cached_property
    def subdirectories(self) -> set[bytes]:
        """The names of the directories that the tree or the facts tell of."""
        in_tree = {name for name, entry in self._entries.items() if entry.mode == MODE_TREE}
        prefix = len(SUBTREE_PREFIX)
        return in_tree | {name[prefix:] for name in self._fact_entries if name.startswith(SUBTREE_PREFIX)}

    def ids_of(self, name: bytes) -> tuple[bytes | None, bytes | None]:
        """Give tree and facts of the directory `name` in here; with equal ids, all below is equal."""
        entry = self._entries.get(name)
        facts = self._fact_entries.get(SUBTREE_PREFIX + name)
        tree = entry.id if entry is not None and entry.mode == MODE_TREE else None
        return tree, facts.id if facts else None

    def enter(self, name: bytes) -> RecordedDirectory:
        """Give the directory `name` in this one, as it was or as it was not."""
        if name not in self._children:
            self._children[name] = RecordedDirectory(self._objects, *self.ids_of(name), self, name)
        return self._children[name]

    @property
    def is_there(self) -> bool:
        """Whether there was such a directory, as far as the tree and its facts tell."""
        return self.tree is not None or self.facts.is_directory

    def state(self, name: bytes, *, as_directory: bool = False) -> Answer:
        """Tell what was at a name in here. Whether what is not there was absent may depend on its kind."""
        entry = self.files.get(name)
        if entry is not None:
            return PathState(self.file_mode(entry), entry.id)
        if name in self.subdirectories and self.enter(name).is_there:
            return DIRECTORY
        reason = self.enter(name).why_unknown_itself() if as_directory else self.why_unknown(name)
        return None if reason is None else Unknown(reason)

    def why_unknown_itself(self) -> str | None:
        """Say why nobody can tell whether there was such a directory; None if there was none."""
        return self.unknown or (LEFT_OUT_THEN if self._is_left_out else None)

    def find(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        """Tell what was at a path below here."""
        names = path.split(b"/")
        directory = self
        for name in names[:-1]:
            directory = directory.enter(name)
        return directory.state(names[-1], as_directory=as_directory)

    def file_mode(self, entry: TreeEntry) -> int:
        """Give the kind and the exact permission bits of a file in this directory, as in `st_mode`."""
        if entry.mode == MODE_LINK:
            return MODE_LINK
        is_executable = entry.mode == MODE_EXEC
        return stat.S_IFREG | self.facts.permissions(entry.name, is_executable=is_executable)

    def has_same_permissions(self, other: RecordedDirectory) -> bool:
        """Tell whether equal entries in here and there have equal permission bits."""
        mine, theirs = self.facts, other.facts
        return (mine.modes, mine.exec_mode, mine.plain_mode) == (
            theirs.modes,
            theirs.exec_mode,
            theirs.plain_mode,
        )

    def why_unknown(self, name: bytes) -> str | None:
        """Say why nothing is known of a file that the tree does not hold; None if it was absent."""
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
        """What is recorded of this directory beside its tree."""
        content = self._fact(DIRECTORY_BLOB)
        return (
            DirectoryFacts() if content is None else decode_directory(content, (self.facts_id or b"").hex())
        )

    @cached_property
    def _entries(self) -> dict[bytes, TreeEntry]:
        if self.tree is None or self.tree == EMPTY_TREE:
            return {}
        return {entry.name: entry for entry in self._objects.read_tree(self.tree)}

    @cached_property
    def _fact_entries(self) -> dict[bytes, TreeEntry]:
        if self.facts_id is None:
            return {}
        return {entry.name: entry for entry in self._objects.read_tree(self.facts_id)}

    def _fact(self, name: bytes) -> bytes | None:
        entry = self._fact_entries.get(name)
        return None if entry is None else self._objects.read(b"blob", entry.id)

    def _ignore_text(self) -> bytes | None:
        in_force = self._fact(IGNORE_BLOB)
        if in_force is not None:
            return in_force or None
        entry = self.files.get(GIT_IGNORE)
        if entry is not None and entry.mode != MODE_LINK:
            return self._objects.read(b"blob", entry.id) or None
        return None

    def _root_policy(self) -> Policy:
        content = self._fact(RULES_BLOB)
        assert content is not None, "facts of a root always hold rules"
        rules = decode_rules(content, (self.facts_id or b"").hex())
        return Policy.root(
            own_text=from_text(rules.own_text),
            global_text=from_text(rules.global_text),
            around=[(from_text(name), from_text(text)) for name, text in rules.around],
            exclude_text=None if rules.exclude_text is None else from_text(rules.exclude_text),
            ignore_text=self._ignore_text(),
            heavy_dirs=frozenset(from_text(name) for name in rules.heavy_dirs),
            max_file_size=rules.max_file_size,
        )

    def _inherit(self, above: RecordedDirectory) -> None:
        """Take over the rules from the directory above, or what makes everything in here unknown."""
        prefix = self._name + b"/"
        missing = above._missing | above.facts.missing
        self._missing = frozenset(path[len(prefix) :] for path in missing if path.startswith(prefix))
        self.unknown = above.unknown or above.facts.skipped.get(self._name)
        if self.unknown is not None:
            return
        assert above._policy is not None
        mode, is_entered = above._policy.judge_directory(self._name)
        if (not is_entered and self.tree is None) or is_own_temporary(self._name):
            self.unknown = LEFT_OUT_THEN
            return
        self._is_left_out = mode not in (NORMAL, FORCED)
        self._policy = Policy(
            above._policy,
            self._name,
            mode,
            ignore_text=self._ignore_text(),
            exclude_text=self._fact(EXCLUDE_BLOB),
        )


def open_recorded(objects: Objects, tree: bytes, facts: bytes) -> RecordedDirectory:
    """Read a recorded tree from its root on."""
    return RecordedDirectory(objects, tree, facts)


class PathSearch:
    """Looks for one path in many trees; what most of them share is read once."""

    def __init__(self, objects: Objects, path: RelPath) -> None:
        self._objects = objects
        self._names = path.split(b"/")
        self._without: set[tuple[int, bytes]] = set()
        """Subtrees known not to lead to the path, each with its depth."""

    def is_in(self, tree: bytes) -> bool:
        """Tell whether a tree covers a file at the path."""
        passed = []
        for depth, name in enumerate(self._names):
            if (depth, tree) in self._without:
                break
            passed.append((depth, tree))
            found = next((entry for entry in self._objects.read_tree(tree) if entry.name == name), None)
            is_last = depth == len(self._names) - 1
            if found is None or (found.mode == MODE_TREE) == is_last:
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
    """List what changed from `before` to `after`, both roots, sorted by path: files, links and directories.

    A file of which one of the two can say nothing is listed with that side unknown; such a directory is not.
    """
    changes: list[Change] = []
    waiting: list[tuple[RelPath, RecordedDirectory, RecordedDirectory]] = [(ROOT, before, after)]
    while waiting:
        path, old, new = waiting.pop()
        if old.tree == new.tree and old.facts_id == new.facts_id:
            continue
        for name in _names_changed(old, new) | _names_skipped(old, new):
            _add(changes, join(path, name), old.state(name), new.state(name))
        for name in old.subdirectories | new.subdirectories:
            if old.ids_of(name) != new.ids_of(name):
                below = join(path, name)
                waiting.append((below, old.enter(name), new.enter(name)))
                if name not in old.files and name not in new.files:
                    _add_directory(changes, below, old, new, name)
    changes.sort(key=lambda change: change.path)
    return changes


def diff_patch(patch: Patch, objects: Objects) -> list[FileDiff]:
    """Show how each path of a patch differs, as text."""
    return [_diff_path(changed, objects) for changed in patch.files]


def _diff_path(changed: ChangedPath, objects: Objects) -> FileDiff:
    from shadowtree.text.linediff import MAX_TEXT_BYTES
    from shadowtree.text.unified_diff import diff_text

    try:
        old, new = (
            None if blob is None else objects.read_small(bytes.fromhex(blob), MAX_TEXT_BYTES)
            for blob in (changed.old_blob, changed.new_blob)
        )
    except TooLarge:
        return FileDiff(changed.path, changed.status, 0, 0, False, "")
    text = diff_text(changed.path, old, new, old_mode=changed.old_mode, new_mode=changed.new_mode)
    return FileDiff(changed.path, changed.status, text.additions, text.deletions, text.binary, text.patch)


def _names_changed(old: RecordedDirectory, new: RecordedDirectory) -> set[bytes]:
    """Name the files whose entries differ, or all if the permission bits beside them do."""
    if not old.has_same_permissions(new):
        return old.files.keys() | new.files.keys()
    before = {(entry.name, entry.mode, entry.id) for entry in old.files.values()}
    after = {(entry.name, entry.mode, entry.id) for entry in new.files.values()}
    return {name for name, _, _ in before ^ after}


def _names_skipped(old: RecordedDirectory, new: RecordedDirectory) -> set[bytes]:
    """Name what one of the two left out: the other one may know of it."""
    return {name for name in (*old.facts.skipped, *new.facts.skipped) if name}


def _add(changes: list[Change], path: RelPath, old: Answer, new: Answer) -> None:
    if old != new and not (isinstance(old, Unknown) and isinstance(new, Unknown)):
        changes.append(Change(path, old, new))


def _add_directory(
    changes: list[Change], path: RelPath, old: RecordedDirectory, new: RecordedDirectory, name: bytes
) -> None:
    before, after = old.state(name, as_directory=True), new.state(name, as_directory=True)
    if not isinstance(before, Unknown) and not isinstance(after, Unknown):
        _add(changes, path, before, after)


# The last tree and a scan
#
# Most messages edit files that are there. A scan on top of a census has the directories of those files before
# its eyes twice, as they were recorded and as they are; where both have the same names, the rows tell all:
#
#     known    a.py 1f…  b.py 77…  c.py 30…
#     now      a.py 1f…  b.py e2…  c.py 30…      ──▶ b.py changed, from 77… to e2…
#
# As soon as a name came or went anywhere, what that means depends on the rules, and the trees are compared.


def list_rewritten(scan: Scan, tree: bytes, facts: bytes) -> list[Change] | None:
    """List what changed since a tree was recorded, by path; None if only comparing the trees can tell.

    The trees of the scan must have been built.
    """
    root = scan.known(ROOT)
    if root is None or (root.tree, root.facts) != (tree, facts) or scan.gone:
        return None
    changed = [d for d, is_changed in zip(scan.directories, scan.changed, strict=True) if is_changed]
    if not all(_is_whole(path, scan) for path in {parent_of(directory.path) for directory in changed}):
        return None
    changes: list[Change] = []
    for directory in changed:
        known = scan.known(directory.path)
        if known is None or not _is_alike(known, directory):
            return None
        if directory.path not in scan.only_built:
            changes += _compare_files(known, directory)
    changes.sort(key=lambda change: change.path)
    return changes


def _is_alike(known: Directory, now: Directory) -> bool:
    """Tell whether two views of a directory differ in nothing but their files' contents and modes."""
    return (
        known.names == now.names
        and known.subdirectories == now.subdirectories
        and known.skipped == now.skipped
        and known.missing == now.missing
        and (known.tree is None) == (now.tree is None)
    )


def _is_whole(path: RelPath, scan: Scan) -> bool:
    """Tell whether a directory as it is known was built from those in it as they are known.

    A cache that lost its newest rows in a power cut, and a census that came from there, may mix old and new.
    """
    known = scan.known(path)
    if known is None:
        return False
    below = [scan.known(join(path, name)) for name, _ in reversed(known.subdirectories)]
    return known.below_ids == join_ids(child for child in below if child is not None)


def _compare_files(known: Directory, now: Directory) -> Iterator[Change]:
    """Give the files whose content or mode is another; both views have the same names."""
    old_ids, new_ids = bytes(known.ids), bytes(now.ids)
    old_modes, new_modes = known.stats[4::STAMP_SIZE], now.stats[4::STAMP_SIZE]
    if old_ids == new_ids and old_modes == new_modes:
        return
    for row, at in enumerate(range(0, len(new_ids), ID_SIZE)):
        if old_ids[at : at + ID_SIZE] != new_ids[at : at + ID_SIZE] or old_modes[row] != new_modes[row]:
            old, new = _state_of(known, row), _state_of(now, row)
            if old != new:
                yield Change(join(now.path, now.names[row]), old, new)


def _state_of(directory: Directory, row: int) -> PathState:
    mode = directory.file_mode(row)
    exact = MODE_LINK if stat.S_ISLNK(mode) else stat.S_IFREG | mode & 0o777
    return PathState(exact, directory.file_id(row))
