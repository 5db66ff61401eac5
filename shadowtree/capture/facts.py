"""Facts: what is recorded with a tree because git trees cannot hold it, as separate git objects.

Facts have the shape of the worktree: one git tree per directory, in which `=NAME` is the subtree of the
directory NAME. These blobs describe the directory itself; each is left out if it would be empty:

    %directory   records `key value`, each ended by NUL:
                   `directory`         it exists, though the tree has no entry for it
                   `modes 664 775`     the permission bits of plain and of executable files here
                   `mode 600 NAME`     the bits of one file that differ from these
                   `missing PATH`      tracked by an index and missing; the rules alone would leave it out
                   `skipped NAME/WHY`  left out though the rules would have covered it
    %gitignore   the text of the `.gitignore` in force, if the tree does not hold exactly that
    %exclude     the `info/exclude` of the repository whose top it is
    %rules       at the root: all other rules, as JSON

Equal subtrees have equal ids, so comparing and storing facts costs what changed, as with trees.
"""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Collection

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import from_text, to_text
from shadowtree.capture.directories import GIT_IGNORE, Directory
from shadowtree.store.git_format import blob_id

DIRECTORY_BLOB = b"%directory"
IGNORE_BLOB = b"%gitignore"
EXCLUDE_BLOB = b"%exclude"
RULES_BLOB = b"%rules"
SUBTREE_PREFIX = b"="
ANYTHING = b"*\n"
"""Replaces rules whose text was purged: they may have left out anything that the tree does not hold."""

HOLDS_STORES = "shadowtree keeps its stores there"
"""Why a directory is skipped that users need not hear of, though what it contains is unknown."""

_PLAIN, _EXEC = 0o644, 0o755


@frozen
class DirectoryFacts:
    """What is recorded about one directory in addition to its tree."""

    is_directory: bool = False
    plain_mode: int = _PLAIN
    exec_mode: int = _EXEC
    modes: dict[bytes, int] = field(default_factory=dict)
    missing: frozenset[bytes] = frozenset()
    skipped: dict[bytes, str] = field(default_factory=dict)

    def permissions(self, name: bytes, *, is_executable: bool) -> int:
        """Return the exact permission bits of a file in this directory."""
        return self.modes.get(name, self.exec_mode if is_executable else self.plain_mode)


@frozen
class RootRules:
    """The rules that no file inside the worktree holds."""

    own_text: bytes
    """`.shadowtreeignore`."""
    global_text: bytes
    exclude_text: bytes | None
    around: list[tuple[bytes, bytes]]
    """The directories from the top of the repository around the worktree down to the worktree's parent.

    Each with the name of the next directory below, and the text of its own `.gitignore`.
    """
    heavy_dirs: list[bytes]
    max_file_size: int

    def veil(self, purged: Collection[bytes]) -> RootRules:
        """Return the rules with purged texts replaced."""
        return replace(
            self,
            own_text=veil(self.own_text, purged),
            global_text=veil(self.global_text, purged),
            exclude_text=None if self.exclude_text is None else veil(self.exclude_text, purged),
            around=[(name, veil(text, purged)) for name, text in self.around],
        )


def veil(text: bytes, purged: Collection[bytes]) -> bytes:
    """Return the text of rules, or `ANYTHING` if it was purged."""
    return ANYTHING if purged and blob_id(text) in purged else text


def encode_blobs(directory: Directory, purged: Collection[bytes], *, has_entry: bool) -> dict[bytes, bytes]:
    """Return the blobs of one directory by name, without the rules of the root."""
    blobs = {}
    records = encode_directory(directory, has_entry=has_entry)
    if records:
        blobs[DIRECTORY_BLOB] = records
    if not _holds_rules(directory):
        blobs[IGNORE_BLOB] = veil(directory.ignore_text or b"", purged)
    if directory.exclude_text:
        blobs[EXCLUDE_BLOB] = veil(directory.exclude_text, purged)
    return blobs


def _holds_rules(directory: Directory) -> bool:
    """Return whether the tree holds the `.gitignore` that was in force; it may have changed since."""
    row = directory.find_file(GIT_IGNORE)
    if row is None or stat.S_ISLNK(directory.file_mode(row)):
        return not directory.ignore_text
    return directory.file_id(row) == blob_id(directory.ignore_text or b"")


def encode_directory(directory: Directory, *, has_entry: bool) -> bytes:
    """Encode the facts of one directory; empty if there are none. `has_entry`: the tree contains it."""
    records = [] if has_entry else [b"directory"]
    records += _encode_modes(directory)
    records += [b"missing " + path for path in directory.missing]
    records += [b"skipped %b/%b" % (name, reason.encode()) for name, reason in sorted(directory.skipped)]
    return b"".join([record + b"\0" for record in records])


def _encode_modes(directory: Directory) -> list[bytes]:
    # Nearly every directory ends here, so one fast pass decides the common case.
    modes = directory.stats[4::5]
    if not set(modes) - {0o100644, 0o100755, 0o120777}:
        return []
    plain: Counter[int] = Counter()
    executable: Counter[int] = Counter()
    for mode in modes:
        if mode & 0o170000 == 0o100000:
            (executable if mode & 0o100 else plain)[mode & 0o777] += 1
    usual = [_most_common(plain, _PLAIN), _most_common(executable, _EXEC)]
    records = [] if usual == [_PLAIN, _EXEC] else [b"modes %o %o" % (usual[0], usual[1])]
    for name, mode in zip(directory.names, modes, strict=True):
        if mode & 0o170000 == 0o100000 and mode & 0o777 != usual[bool(mode & 0o100)]:
            records.append(b"mode %o %b" % (mode & 0o777, name))
    return records


def _most_common(counts: Counter[int], default: int) -> int:
    # Ties are broken too: the same files must have the same facts, in any order.
    return min(counts, key=lambda mode: (-counts[mode], mode != default, mode), default=default)


def decode_directory(content: bytes, of: str) -> DirectoryFacts:
    """Decode the facts of one directory; `of` is their id, for errors."""
    is_directory, plain, executable = False, _PLAIN, _EXEC
    modes: dict[bytes, int] = {}
    missing: set[bytes] = set()
    skipped: dict[bytes, str] = {}
    try:
        for record in content.split(b"\0")[:-1]:
            key, _, value = record.partition(b" ")
            if key == b"directory":
                is_directory = True
            elif key == b"modes":
                plain, executable = (int(mode, 8) & 0o777 for mode in value.split(b" "))
            elif key == b"mode":
                mode, _, name = value.partition(b" ")
                modes[name] = int(mode, 8) & 0o777
            elif key == b"missing":
                missing.add(value)
            elif key == b"skipped":
                name, _, reason = value.partition(b"/")
                skipped[name] = to_text(reason)
            else:
                raise ValueError(key)
    except ValueError as error:
        raise StoreDamaged(f"facts {of} cannot be read") from error
    return DirectoryFacts(is_directory, plain, executable, modes, frozenset(missing), skipped)


def leave_out(content: bytes, names: Collection[bytes], reason: str, *, has_entry: bool) -> bytes:
    """Return the facts of a directory, changed so that some names are skipped, for a reason.

    Unless it `has_entry`, the facts also record that it exists, though the tree has no entry for it.
    """
    records = [] if has_entry else [b"directory"]
    skipped = {name: b"skipped %b/%b" % (name, reason.encode()) for name in names}
    for record in content.split(b"\0")[:-1]:
        key, _, value = record.partition(b" ")
        if key == b"skipped":
            skipped.setdefault(value.partition(b"/")[0], record)
            continue
        is_of_one = key == b"mode" and value.partition(b" ")[2] in names
        if record not in records and not is_of_one:
            records.append(record)
    records += [skipped[name] for name in sorted(skipped)]
    return b"".join([record + b"\0" for record in records])


def encode_rules(rules: RootRules) -> bytes:
    """Encode the rules of the root."""
    import json

    fields = {
        "own_text": to_text(rules.own_text),
        "global_text": to_text(rules.global_text),
        "exclude_text": None if rules.exclude_text is None else to_text(rules.exclude_text),
        "around": [(to_text(name), to_text(text)) for name, text in rules.around],
        "heavy_dirs": [to_text(name) for name in rules.heavy_dirs],
        "max_file_size": rules.max_file_size,
    }
    return json.dumps(fields, sort_keys=True).encode()


def decode_rules(content: bytes, of: str) -> RootRules:
    """Decode the rules of the root."""
    import json

    try:
        fields = json.loads(content)
        exclude = fields["exclude_text"]
        return RootRules(
            own_text=from_text(fields["own_text"]),
            global_text=from_text(fields["global_text"]),
            exclude_text=None if exclude is None else from_text(exclude),
            around=[(from_text(name), from_text(text)) for name, text in fields["around"]],
            heavy_dirs=[from_text(name) for name in fields["heavy_dirs"]],
            max_file_size=fields["max_file_size"],
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreDamaged(f"rules {of} cannot be read") from error
