"""The refs of a store for dulwich, written durably.

This private name of dulwich is used: `_check_refname`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BytesIO
from typing import Any

from dulwich.errors import RefFormatError
from dulwich.objects import ZERO_SHA, ObjectID, RawObjectID, sha_to_hex, valid_hexsha
from dulwich.refs import SYMREF, DiskRefsContainer, Ref, SymrefLoop, refname_is_safe, write_packed_refs

from shadowtree.base.errors import InvalidInput, StoreFailed
from shadowtree.store.directory import HEAD_REF, StoreLayout, begin_ref, remove_dead_locks
from shadowtree.store.refs import list_own_refs
from shadowtree.system import disk

Locked = Callable[[], AbstractContextManager[object]]
"""Takes the lock of the store."""


class ShadowRefs(DiskRefsContainer):
    """The refs of a store, written durably and under its lock, without reflogs.

    Files that dulwich writes can be read by other users for a short time, or for longer after a kill.
    """

    def __init__(self, store: str, locked: Locked = nullcontext) -> None:
        super().__init__(store)
        self._store = store
        self._locked = locked

    def update(self, refs: Mapping[bytes, bytes | None]) -> None:
        """Set refs to objects, by their raw ids; None removes the ref."""
        with self._writing():
            for name, id in refs.items():
                if id is None:
                    self._remove(Ref(name))
                else:
                    self._write(Ref(name), sha_to_hex(RawObjectID(id)))

    # Any: committer, time and message, which only a reflog would have

    def set_if_equals(self, name: Ref, old_ref: Any, new_ref: Any, *rest: Any, **named: Any) -> bool:
        """Set a ref, or the one that it leads to, if its value is `old_ref` or `old_ref` is None."""
        with self._writing():
            ref = self._resolve(name)
            if old_ref is not None and (self.read_ref(ref) or ZERO_SHA) != old_ref:
                return False
            self._write(ref, new_ref)
            return True

    def add_if_new(self, name: Ref, ref: ObjectID, *rest: Any, **named: Any) -> bool:
        """Set a ref, or the one that it leads to, unless it has a value."""
        with self._writing():
            resolved = self._resolve(name)
            if self.read_ref(resolved):
                return False
            self._write(resolved, ref)
            return True

    def set_symbolic_ref(self, name: Ref, other: Ref, *rest: Any, **named: Any) -> None:
        """Make a ref lead to another one, but not HEAD: it leads to the session that recorded last."""
        if name == b"HEAD" and other != HEAD_REF.encode():
            raise InvalidInput("HEAD of a store cannot be changed")
        for each in (name, other):
            self._check_refname(each)
        with self._writing():
            self._write(name, SYMREF + other)

    def remove_if_equals(self, name: Ref, old_ref: ObjectID | None, *rest: Any, **named: Any) -> bool:
        """Remove a ref, if its value is `old_ref` or `old_ref` is None."""
        self._check_refname(name)
        with self._writing():
            if old_ref is not None and (self.read_ref(name) or ZERO_SHA) != old_ref:
                return False
            self._remove(name)
            return True

    def add_packed_refs(self, new_refs: Mapping[Ref, ObjectID | None]) -> None:
        """Write refs to `packed-refs`, or remove them from it, and remove their own files."""
        for ref in new_refs:
            self._check_refname(ref)
        with self._writing():
            packed = {**self.get_packed_refs(), **new_refs}
            self._write_packed({ref: id for ref, id in packed.items() if id is not None})
            for ref in new_refs:
                self._remove_file(ref)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the lock of the store, and the one by which git packs refs; remove those of dead processes."""
        with self._locked():
            remove_dead_locks(self._store)
            with disk.hold_lock_file(os.path.join(self._store, "packed-refs")):
                yield

    def _resolve(self, name: Ref) -> Ref:
        """Return the ref that `name` leads to; raise RefFormatError if it cannot be a file among the refs."""
        self._check_refname(name)
        with suppress(SymrefLoop):
            name = self.follow(name)[0][-1]
        if not refname_is_safe(name):
            raise RefFormatError(name)
        return name

    def _write(self, ref: Ref, content: bytes) -> None:
        if not (valid_hexsha(content) or content.startswith(SYMREF)):
            raise ValueError(f"{content!r} is neither an id nor a symbolic ref")
        path = os.fsdecode(self.refpath(ref))
        if any(each.startswith(ref + b"/") or ref.startswith(each + b"/") for each in self.get_packed_refs()):
            raise StoreFailed(path, "another ref is in the way")
        above = os.path.dirname(path)
        is_new = not os.path.isdir(above)
        disk.make_directories(above)
        with disk.hold_lock_file(path):
            disk.write_file(path, content + b"\n", beside=StoreLayout(self._store).config)
        while is_new and above != self._store:
            above = os.path.dirname(above)
            disk.sync_names(above)

    def _remove(self, ref: Ref) -> None:
        # The file is removed last, so that an older packed value does not come back.
        packed = self.get_packed_refs()
        if ref in packed:
            self._write_packed({each: id for each, id in packed.items() if each != ref})
        self._remove_file(ref)

    def _remove_file(self, ref: Ref) -> None:
        """Remove the file of a ref, and the directories that are then empty, except git's own."""
        path = os.fsdecode(self.refpath(ref))
        if os.path.lexists(path):
            with disk.hold_lock_file(path):
                disk.remove_file(path)
        above, own = os.path.dirname(path), os.path.dirname(StoreLayout(self._store).ref)
        with suppress(OSError):
            while len(above) > len(own):
                os.rmdir(above)
                above = os.path.dirname(above)
        if os.path.isdir(above):
            disk.sync_names(above)

    def _write_packed(self, refs: Mapping[Ref, ObjectID]) -> None:
        content = BytesIO()
        write_packed_refs(content, refs)
        disk.write_file(os.path.join(self._store, "packed-refs"), content.getvalue())


def drop_own_refs(layout: StoreLayout) -> None:
    """Remove the refs to sessions as commits, and reset HEAD's, so that they keep nothing alive.

    Only for the lock holder. The refs are written again when `Shadow.repo` is used.
    """
    begin_ref(layout)
    ShadowRefs(layout.store).update(dict.fromkeys(list_own_refs(layout.store)))
