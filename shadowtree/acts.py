"""What changes the worktree: revert, undo, redo, unrevert, switch, restore; and the branches they leave."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shadowtree.arguments import check_name, parse_paths, read_manner
from shadowtree.capture import look, scan_site
from shadowtree.door import Door, StrPath, last_tree
from shadowtree.errors import InvalidInput
from shadowtree.model import Branch
from shadowtree.sessions import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.aims import Aim, Aims
    from shadowtree.arguments import Manner
    from shadowtree.opened import OpenStore
    from shadowtree.outcome import OnConflict, Outcome, Plan
    from shadowtree.reverting import Confirm


class Acts(Door):
    """The acts of a shadow, and its branches."""

    # Acts
    #
    # Each can be told what to do where somebody else changed the same paths: stop (`abort`), leave them
    # (`keep`), take what is wished (`overwrite`), or `merge`. `markers` puts both versions of colliding texts
    # between markers; `dry_run` changes nothing; `confirm` is asked before an act that deletes much.

    def plan_revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        only: bool = False,
        files: bool = True,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
    ) -> Plan:
        """Work out what `revert` would do, and change nothing."""
        choose = self._choose_revert(id, step, paths, only=only, files=files)
        return self._plan(choose, read_manner(on_conflict, markers, files))

    def revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        only: bool = False,
        files: bool = True,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take the worktree to where it was before a message: all paths that it and later ones changed.

        With `only`, take that one message out from under the later ones, which stay. With `step`, to before
        that step of it, or that step alone; with `paths`, only these files and directories. Neither moves the
        head. Without `files` only the head moves, and no file is touched.
        """
        choose = self._choose_revert(id, step, paths, only=only, files=files)
        return self._act(choose, read_manner(on_conflict, markers, files), dry_run, confirm)

    def unrevert(
        self,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take back the last of these acts that changed anything; repeated, the ones before it."""
        return self._act(lambda aims: aims.unrevert(), read_manner(on_conflict, markers), dry_run, confirm)

    def undo(
        self,
        turns: int = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go back by turns."""
        return self._act(lambda aims: aims.undo(turns), read_manner(on_conflict, markers), dry_run, confirm)

    def redo(
        self,
        turns: int | None = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go forward again by turns; None: to the end."""
        return self._act(lambda aims: aims.redo(turns), read_manner(on_conflict, markers), dry_run, confirm)

    def switch(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go to the state after a message, on whatever branch, or to the end of a branch.

        What is left is archived first, under the name that it had or a new one.
        """
        return self._act(lambda aims: aims.switch(ref), read_manner(on_conflict, markers), dry_run, confirm)

    def restore(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Make all that is covered equal to a tree: that after a message, before it (`ID^`), or any one."""
        return self._act(lambda aims: aims.restore(ref), read_manner(on_conflict, markers), dry_run, confirm)

    def _choose_revert(
        self,
        id: str,
        step: str | None,
        paths: Collection[StrPath] | None,
        *,
        only: bool,
        files: bool,
    ) -> Callable[[Aims], Aim]:
        own = parse_paths(paths, self._gate.worktree)
        is_part = step is not None or own is not None
        if not files and (is_part or only):
            raise InvalidInput("without files only the head moves, so there is no part of them to revert")

        def choose(aims: Aims) -> Aim:
            row = aims.resolve(id)
            if only:
                return aims.revert_only(row, step, own)
            return aims.revert_part(row, step, own) if is_part else aims.revert(row)

        return choose

    def _act(
        self, choose: Callable[[Aims], Aim], manner: Manner, dry_run: bool, confirm: Confirm | None
    ) -> Outcome:
        if dry_run:
            return self._plan(choose, manner).outcome
        from shadowtree import reverting

        known = len(self._gate.recovered)
        with self._mutex:
            with self._gate.locked() as opened:
                tree = last_tree(opened)
                try:
                    recorder = self._make_recorder(opened, None)
                    outcome = reverting.run(
                        opened,
                        self._gate.site,
                        recorder,
                        choose,
                        manner,
                        confirm,
                        git_head=self._git_head(),
                        cancellation=self._cancellation,
                    )
                except BaseException:
                    self._gate.forget(opened, is_new=False)
                    raise
                outcome = _with_notes(outcome, self._gate.recovered[known:])
                # An act is done whatever the budget says: it may be the way out.
                has_to_shrink = self._has_to_shrink(opened, tree)
            return _with_notes(outcome, self._keep_budgets(tree) if has_to_shrink else [])

    def _plan(self, choose: Callable[[Aims], Aim], manner: Manner) -> Plan:
        from shadowtree import reverting
        from shadowtree.staging import Bench

        def read(opened: OpenStore) -> Plan:
            opened.refresh()
            scan = scan_site(self._gate.site, opened)
            with look(self._gate.site, opened, scan) as (objects, root), Bench(self._gate.worktree) as bench:
                recorder = self._make_recorder(opened, None)
                prepared = reverting.prepare(
                    recorder, objects, root, bench, choose, manner, scan=scan, git_head=self._git_head()
                )
                return prepared.to_plan()

        return self._look(read)

    # Branches

    def branches(self) -> list[Branch]:
        """List the branches of this session, oldest first."""
        return self._look(lambda opened: Session(opened.journal, self._session).read_branches())

    def rename_branch(self, name: str, new: str) -> Branch:
        """Give a branch another name."""
        check_name(new, "branch")
        return self._record(
            lambda recorder: recorder.branches.rename(recorder.session, name, new), wraps=False, takes=False
        )

    def drop_branch(self, name: str) -> Branch:
        """Take a branch from the list; each of its messages can still be switched to by its id."""
        return self._record(
            lambda recorder: recorder.branches.drop(recorder.session, name), wraps=False, takes=False
        )


def _with_notes(outcome: Outcome, notes: list[str]) -> Outcome:
    from shadowtree.frozen import replace

    return replace(outcome, notes=[*outcome.notes, *notes]) if notes else outcome
