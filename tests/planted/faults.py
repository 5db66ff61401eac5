"""The faults: each one is small, would cost a user's bytes or trust, and is noticed by a quick test.

A snippet is as short as possible while it occurs once in its module, so that it survives when code is moved.
If it does not, the fault is stale, and its entry here has to follow the code. The tests go through `Shadow`
or the command line if these can show the fault.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, and the tests that notice it."""

    name: str
    module: str
    """The file that it is planted into, relative to `shadowtree/`."""
    find: str
    """A snippet that occurs exactly once there."""
    plant: str
    """Its replacement."""
    caught_by: str
    """The arguments of pytest: one or more tests, and perhaps `-k`."""
    why: str
    """What a user would lose."""


FAULTS = (
    # Durability
    Fault(
        "pack-not-synced",
        "store/packs/pack_writer.py",
        "disk.sync(self._fd, self._path)",
        "pass",
        "tests/store/test_pack_writer.py::test_a_pack_is_durable_under_its_temporary_name",
        "a power cut empties a large snapshot that was acknowledged",
    ),
    Fault(
        "pack-name-not-synced",
        "store/packs/pack_writer.py",
        "disk.sync_names(self._directory)",
        "pass",
        "tests/timeline/test_publish.py::test_a_large_pack_is_durable_before_its_record_counts_and_has_its_name_after_it",
        "a power cut takes the file of a large pack that is recorded",
    ),
    Fault(
        "pack-not-journaled",
        "timeline/publish_packs.py",
        "for content, versions in self._small:",
        "for content, versions in self._small[:0]:",
        "tests/timeline/test_publish.py::test_whatever_a_power_cut_took_of_the_files_is_made_good_by_the_next_command",
        "a message is published whose objects a power cut takes",
    ),
    Fault(
        "named-before-the-record",
        "timeline/publish_packs.py",
        "self._journal.packs.add_placing(file, self._boot, versions)",
        "self._journal.packs.add_placing(file, self._boot, versions), name_pack(self._layout.packs, file)",
        "tests/timeline/test_publish.py::test_a_pack_whose_process_died_before_its_record_is_removed",
        "what was never recorded stays in the store, and is taken for durable",
    ),
    Fault(
        "row-not-finished",
        "timeline/publish_packs.py",
        "name_pack(packs, row.file)",
        "pass",
        "tests/timeline/test_publish.py::test_a_large_pack_that_counts_gets_its_name_whenever_the_process_died",
        "a large snapshot is lost if its process dies right after it was recorded",
    ),
    Fault(
        "waiting-pack-removed",
        "timeline/publish_packs.py",
        "{name for file in placing for name in (file.temporary, file.index)}",
        "set()",
        "tests/timeline/test_publish.py::test_the_files_of_a_row_are_never_taken_for_those_of_the_dead",
        "a large snapshot is removed as what a dead process left",
    ),
    # Moves in the worktree
    Fault(
        "aside-not-verified",
        "revert/moves.py",
        "writer.state_of(move.temporary, is_settled=True)",
        "move.old",
        "tests/faults/test_races.py::test_an_editor_that_saves_at_any_moment_of_a_merge_loses_nothing",
        "what an editor saves during an undo is replaced, and only the store has it",
    ),
    Fault(
        "move-replaces",
        "system/syscalls.py",
        "_rename(a_fd, a, b_fd, b, _NO_REPLACE)",
        "_rename(a_fd, a, b_fd, b, 0)",
        "tests/revert/test_moves.py::test_what_somebody_did_meanwhile_stops_the_act_and_stays",
        "a file that somebody makes during an undo is replaced",
    ),
    Fault(
        "swap-in-three-steps",
        "system/syscalls.py",
        "_rename(a_fd, a, b_fd, b, _EXCHANGE)",
        "_exchange_by_moves(a_fd, a, b_fd, b)",
        "tests/project/test_system.py::test_names_are_swapped_in_one_instant_on_the_file_systems_of_this_machine",
        "a build that runs during an undo finds a file missing",
    ),
    Fault(
        "directory-link-followed",
        "system/files.py",
        "os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "os.O_DIRECTORY | os.O_CLOEXEC",
        "tests/faults/test_races.py::test_a_directory_that_is_swapped_for_a_link_leads_nobody_outside",
        "an undo writes outside of the worktree",
    ),
    Fault(
        "exec-bit-lost",
        "revert/writer.py",
        "os.fchmod(fd, mode)",
        "os.fchmod(fd, mode & 0o666)",
        "tests/api/test_revert.py::test_permission_bits_come_back_whatever_the_umask",
        "a script that comes back cannot be run",
    ),
    # Acts and crashes
    Fault(
        "kill-not-taken-back",
        "revert/recover.py",
        "roll_back(intent.moves, writer, read_blob)",
        "roll_back([], writer, read_blob)",
        "tests/cli/test_cli_revert.py::test_any_command_makes_good_what_was_killed",
        "an undo that was killed stays half done, and is said to be taken back",
    ),
    Fault(
        "kill-not-finished",
        "revert/recover.py",
        "is_done = row.is_committed or intent.waits_to_be == FINISHED",
        "is_done = False",
        "tests/cli/test_cli_revert.py::test_any_command_finishes_what_was_killed_once_it_was_recorded",
        "an undo that is recorded is taken back, and the timeline lies",
    ),
    Fault(
        "old-blob-not-proved",
        "revert/contents.py",
        "self._objects.prove(move.old.blob)",
        "self._objects.has(move.old.blob)",
        "tests/api/test_revert.py::test_what_is_about_to_be_replaced_is_read_back_from_the_store_first",
        "a file is replaced whose only copy in the store is damaged",
    ),
    Fault(
        "not-asked",
        "revert/act.py",
        "needs_confirmation(prepared):",
        "False:",
        "tests/cli/test_cli_revert.py::test_what_deletes_much_because_of_an_inferred_end_needs_a_yes",
        "an undo deletes files of a message that nobody ended without a question",
    ),
    Fault(
        "dry-run-acts",
        "access/acts.py",
        "if options.dry_run or access.lacks_store:",
        "if False:",
        "tests/cli/test_cli_revert.py::test_a_dry_run_changes_nothing",
        "who only wants to see what an undo would do has done it",
    ),
    Fault(
        "any-page-acts",
        "web/guard.py",
        "origin is not None and origin not in",
        "origin == 'https://evil.example' and origin in",
        "tests/web/test_guard.py::test_a_foreign_origin_is_refused",
        "a web page that the user visits undoes their work",
    ),
    Fault(
        "no-token-needed",
        "web/guard.py",
        'scheme.lower() != "bearer" or not is_known',
        "not scheme",
        "tests/web/test_guard.py::test_every_route_needs_the_token",
        "other users of the machine read what is recorded, and change files",
    ),
    Fault(
        "unseen-plan-done",
        "web/routes.py",
        "route.is_act and given.get",
        "False and given.get",
        "tests/web/test_routes.py::test_an_act_needs_the_id_of_a_plan",
        "a front end changes files that nobody was shown",
    ),
    Fault(
        "ctrl-c-lost",
        "base/interrupts.py",
        "self._is_noted = True",
        "self._is_noted = False",
        "tests/cli/test_cli_revert.py::test_an_interrupt_in_the_middle_of_an_act_changes_nothing",
        "Ctrl-C does not stop an undo",
    ),
    # The targets of acts
    Fault(
        "edit-overwritten",
        "revert/plan.py",
        "if present == expected:",
        "if True:",
        "tests/api/test_conflicts.py::test_abort_touches_nothing_and_tells_each_path_why_and_what_to_do",
        "what the user edited since is overwritten without a conflict",
    ),
    Fault(
        "latest-before-state",
        "revert/wanted.py",
        "if change.path in paths:",
        "if change.path in paths and event.number not in over:",
        "tests/api/test_revert.py::test_the_earliest_before_state_wins",
        "going back over two messages ends between them",
    ),
    Fault(
        "only-without-merge",
        "revert/targets.py",
        "merged = paths_of(route.messages)",
        "merged = set()",
        "tests/api/test_branches.py::test_one_message_is_taken_out_and_the_later_ones_stay",
        "`revert --only` takes away what later messages did",
    ),
    Fault(
        "merge-takes-theirs",
        "revert/plan.py",
        "theirs if ours == base else None",
        "theirs",
        "tests/cli/test_cli_branches.py::test_a_merge_takes_the_message_out_from_under_an_edit",
        "a merge drops the user's edit",
    ),
    Fault(
        "other-session-ignored",
        "revert/history.py",
        "not spans or self.session.number is None",
        "True",
        "tests/api/test_conflicts.py::test_a_later_message_of_another_session_is_a_conflict",
        "an undo takes away what another session did",
    ),
    Fault(
        "redo-brings-all-back",
        "timeline/position.py",
        "if position.is_out(row.number):\n            continue",
        "if False:\n            continue",
        "tests/api/test_branches.py::test_undo_and_redo_pass_by_a_message_that_was_taken_out",
        "redo brings back a message that was taken out",
    ),
    Fault(
        "undone-not-archived",
        "timeline/append.py",
        "self._archive(undone, event.number, self.journal.last_number() + 1)",
        "pass",
        "tests/api/test_branches.py::test_a_new_message_after_an_undo_archives_the_undone_ones",
        "what was undone cannot be found once a new message begins",
    ),
    Fault(
        "left-out-is-absent",
        "capture/recorded_tree.py",
        "LEFT_OUT_THEN if self._policy.judge_file(name) == LEFT_OUT else None",
        "None",
        "tests/api/test_incidents.py::test_i11_files_shown_by_a_rule_that_the_message_removed_are_not_removed",
        "an undo deletes files of which nothing was recorded",
    ),
    # Snapshots
    Fault(
        "mode-bits-lost",
        "capture/facts.py",
        "mode & 0o777 != usual[bool(mode & 0o100)]",
        "False",
        "tests/api/test_opencode_revert.py::test_e14_a_private_file_never_comes_back_wider",
        "a private key comes back readable by everybody",
    ),
    Fault(
        "empty-directory-lost",
        "capture/read_files.py",
        "has_entry = is_root or",
        "has_entry = True or",
        "tests/api/test_revert.py::test_empty_directories_that_the_message_removed_come_back",
        "empty directories do not come back",
    ),
    Fault(
        "young-file-trusted",
        "capture/read_files.py",
        "directory.smudge(row)",
        "pass",
        "tests/capture/test_walk.py::test_a_write_that_outlasts_its_stamp_is_seen",
        "a change right after a snapshot is never seen",
    ),
    Fault(
        "negation-ignored",
        "capture/rules/gitignore.py",
        "not outcome & 1",
        "True",
        "tests/capture/test_coverage.py::test_own_rules_bring_back",
        "what a `!` rule brings back is not protected",
    ),
    Fault(
        "tracked-left-out",
        "capture/rules/coverage.py",
        "TRACKED if self.is_tracked(name) else LEFT_OUT",
        "LEFT_OUT",
        "tests/capture/test_coverage.py::test_a_tracked_file_is_covered_whatever_git_ignores",
        "a tracked file that is ignored too is not protected",
    ),
    Fault(
        "grown-file-dropped",
        "capture/list_directory.py",
        " and not self._was_covered(path)",
        "",
        "tests/api/test_sizes.py::test_a_covered_file_that_grows_above_the_limit_stays_covered",
        "a file that grows over the limit cannot be undone any more",
    ),
    Fault(
        "bytes-of-names-lost",
        "base/paths.py",
        'path.decode("utf-8", "surrogateescape")',
        'path.decode("utf-8", "replace")',
        "tests/cli/test_cli.py::test_json_holds_names_that_are_no_utf8",
        "a file whose name is no UTF-8 is named wrongly",
    ),
    # The store
    Fault(
        "hash-not-checked",
        "store/objects.py",
        "found_kind == kind and object_id(kind, content) == wanted",
        "found_kind == kind",
        "tests/store/test_packs.py::test_a_damaged_loose_object_is_not_there",
        "damage comes back as a file's content",
    ),
    Fault(
        "next-copy-not-tried",
        "store/objects.py",
        "in self.pack_set.find(wanted):",
        "in list(self.pack_set.find(wanted))[:1]:",
        "tests/store/test_packs.py::test_a_damaged_copy_does_not_hide_a_sound_one",
        "a file is lost though a second copy of it is sound",
    ),
    Fault(
        "seal-not-compared",
        "timeline/sqlite/schema.py",
        "if seal != seal_of(columns):",
        "if False:",
        "tests/timeline/test_seals.py::test_no_act_goes_by_a_row_that_is_not_what_was_written",
        "a flipped bit in the timeline decides what is written",
    ),
    Fault(
        "lock-not-taken",
        "store/lock.py",
        "try_lock(self._fd) and self._is_named(self._fd) and self._try_directory()",
        "True",
        "tests/store/test_lock.py::test_the_command_names_the_owner_and_exits_with_11",
        "two processes write to a store at once",
    ),
    Fault(
        "store-open-to-others",
        "system/disk.py",
        "os.chmod(path, 0o700)",
        "os.chmod(path, 0o755)",
        "tests/store/test_store.py::test_only_the_owner_can_enter_a_store_whatever_the_umask",
        "other users read all that is recorded",
    ),
    Fault(
        "other-project-accepted",
        "store/identity.py",
        "self.inode == other.inode and same_generation",
        "True",
        "tests/store/test_store.py::test_another_project_at_the_old_path_is_noticed_by_commands_that_read",
        "an undo writes the files of another project",
    ),
    Fault(
        "home-wrapped",
        "access/broad_worktree.py",
        "raise BroadWorktree(worktree, why)",
        "return",
        "tests/cli/test_cli.py::test_a_broad_directory_needs_the_users_word",
        "a command in the home directory records all of it",
    ),
    Fault(
        "path-escapes",
        "base/arguments.py",
        'raise InvalidInput(f"{path!r} is not in the worktree")',
        "continue",
        "tests/api/test_revert.py::test_a_path_outside_is_an_error_and_nothing_is_touched",
        "a path outside of the worktree means another one inside",
    ),
    # Forgetting and removal
    Fault(
        "live-tree-swept",
        "retention/gc.py",
        "(record.tree, record.facts), record.blobs_beside, deadline",
        "(record.facts,), record.blobs_beside, deadline",
        "tests/store/test_gc.py::test_what_was_forgotten_goes_and_the_rest_stays",
        "`gc` removes what a message needs",
    ),
    Fault(
        "beside-blob-swept",
        "retention/gc.py",
        "(record.tree, record.facts), record.blobs_beside, deadline",
        "(record.tree, record.facts), (), deadline",
        "tests/store/test_gc.py::test_what_is_kept_beside_a_tree_stays_as_long_as_the_tree",
        "`gc` removes a file that an undo replaced and no rule covers",
    ),
    Fault(
        "base-of-a-delta-dropped",
        "store/packs/repack.py",
        "if base in self._taken and base is not None:",
        "if base is not None:",
        "tests/store/test_repack.py::test_what_is_not_live_goes_and_what_was_made_of_it_stays",
        "after `gc` an older version is a delta of what is gone",
    ),
    Fault(
        "new-pack-not-read-back",
        "timeline/tidy.py",
        "verify(publisher.unrecorded(), writers)",
        "pass",
        "tests/store/test_repack.py::test_a_new_pack_that_is_not_what_it_should_be_takes_nothings_place",
        "a repack that went wrong takes the place of what was sound",
    ),
    Fault(
        "pack-not-kept-from-git",
        "store/packs/pack_writer.py",
        "_keep(path)\n    disk.place_file(path + PACK_SUFFIX",
        "disk.place_file(path + PACK_SUFFIX",
        "tests/timeline/test_publish.py::test_what_keeps_packs_from_git_comes_back_after_a_power_cut",
        "`git gc` in the store removes all history",
    ),
    Fault(
        "pin-ignored",
        "retention/policy.py",
        "each.is_pinned or each.number in remaining.open",
        "each.number in remaining.open",
        "tests/api/test_forget.py::test_pinned_and_open_messages_stay",
        "a pinned message is forgotten",
    ),
    Fault(
        "budget-ignored",
        "retention/budget.py",
        "opened.exceeds(settings.store_budget)",
        "False",
        "tests/api/test_budget.py::test_the_oldest_messages_go_when_a_store_is_over_its_budget",
        "a store grows until the disk is full",
    ),
    Fault(
        "purge-leaves-bytes",
        "purge/purge.py",
        "opened.journal.scrub()",
        "pass",
        "tests/api/test_purge.py::test_afterwards_the_bytes_are_nowhere_in_the_store",
        "a secret is still in the store after `purge`",
    ),
    # Watching, blame, front ends
    Fault(
        "overflow-ignored",
        "watching/inotify_watcher.py",
        "mask & inotify.OVERFLOW",
        "False",
        "tests/watching/test_watch_limits.py::test_more_happens_at_once_than_the_queue_holds",
        "changes are missed when much happens at once",
    ),
    Fault(
        "daemon-acts-twice",
        "daemon/client.py",
        "self._open_local().last_number() != lost.number",
        "False",
        "tests/daemon/test_daemon.py::test_an_act_is_done_once_whenever_the_daemon_dies",
        "one `undo` undoes two turns",
    ),
)
