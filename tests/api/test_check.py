"""`check` finds whether a store still holds what was recorded, and `check --repair` repairs it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from shadowtree import AsyncShadow, CheckReport, NotWrapped, Shadow, StoreDamaged, StoreFailed
from shadowtree.results.reports import Forgotten
from shadowtree.store.git_format import blob_id
from shadowtree.store.lock import Lock
from shadowtree.system.disk import name_temporary
from tests.support.processes import COMMAND, surroundings
from tests.support.referee import git
from tests.support.terminal import Terminal
from tests.support.trees import make_tree

NAMES = ["m1", "m2", "m3"]


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """Three messages, each with its own file. The state of the store after the test is not checked."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        _record(shadow, worktree)
        yield shadow


def _record(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"src": {"a": "one\n", "b": "two\n"}, "c": "three\n"})
    shadow.wrap()
    for name in NAMES:
        with shadow.message(name):
            (worktree / "src" / name).write_text(f"of {name}\n")
            (worktree / "c").write_text(f"c of {name}\n")


def kinds(report: CheckReport) -> set[str]:
    """Return the kinds of problems."""
    return {problem.kind for problem in report.problems}


def hurt(report: CheckReport) -> list[str]:
    """Return the ids of the messages that are hurt."""
    return sorted(message.id for message in report.hurt)


def packs_of(shadow: Shadow) -> list[Path]:
    """Return the packs, oldest first."""
    found = (shadow.store / "objects" / "pack").glob("pack-*.pack")
    return sorted(found, key=lambda path: path.stat().st_mtime_ns)


def flip_in(path: Path, at: int) -> None:
    """Flip one bit, and restore size and times."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def everything_in(store: Path) -> dict[str, tuple[int, bytes]]:
    """Read every file of a store, with its mode."""
    found = (path for path in store.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(store)): (path.stat().st_mode, path.read_bytes()) for path in found}


def change_timeline(shadow: Shadow, statement: str) -> None:
    """Change a row of the timeline directly."""
    shadow.close()
    with sqlite3.connect(shadow.store / "timeline.db") as connection:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("read_data", [False, True])
def test_a_sound_store_is_ok(recorded: Shadow, read_data: bool) -> None:
    recorded.revert("m2")
    recorded.unrevert()

    report = recorded.check(read_data=read_data)

    assert report.ok
    assert report.problems == report.harmless == []
    assert report.trees >= 4
    assert (report.objects > 0) is read_data


def test_what_is_above_the_worktree_is_only_evidence(recorded: Shadow) -> None:
    """Somebody may have moved the worktree away and back."""
    recorded.close()
    config = recorded.store / "config"
    core = config.read_text().partition("[shadowtree]")[0]
    config.write_text(core + "[shadowtree]\n\tanchor = 1 2 3 0\n")
    other = recorded.check()

    assert other.problems == []
    assert [problem.kind for problem in other.harmless] == ["config"]


NOTES = {
    "section": (b"[shadowtree]", b"[shado7tree]"),
    "key": (b"\tanchor = ", b"\tanchos = "),
    "digit": (b"\tanchor = ", b"\tanchor = 7"),
    "no words of git's": (b"\tanchor = ", b"\t\x01nchor = "),
    "directory": (b"\tdirectory = ", b"\tdirectory = 7"),
}


@pytest.mark.parametrize("what", [*NOTES, "lost", "followed"])
def test_what_config_notes_of_the_worktree_is_written_anew(recorded: Shadow, what: str) -> None:
    """Otherwise nothing could ever prove that the worktree was removed."""
    recorded.close()
    config = recorded.store / "config"
    whole = config.read_bytes()
    damaged = {
        **{name: whole.replace(*change) for name, change in NOTES.items()},
        "lost": whole.partition(b"[shadowtree]")[0],
        "followed": whole + b"[shadowtree]\n\tanchor = 1 2 3 0\n",
    }[what]
    config.write_bytes(damaged)

    (harmless,) = recorded.check().harmless
    foreseen = recorded.repair(dry_run=True)
    assert config.read_bytes() == damaged
    report = recorded.repair()

    assert harmless.kind == "config"
    assert foreseen.repaired == report.repaired == ["config rebuilt"]
    assert report.problems == report.harmless == []
    assert config.read_bytes() == whole
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "config").read_bytes() == damaged


def record_two_and_forget(shadow: Shadow, worktree: Path) -> Forgotten:
    for name in ("m2", "m3"):
        with shadow.message(name):
            make_tree(worktree, {"a": name})
    return shadow.forget(keep_last=2)


def test_what_an_act_found_as_it_should_be_need_not_be_stored(worktree: Path) -> None:
    """The file is left out by then, and no tree holds its content."""
    make_tree(worktree, {"hidden": {"f": "old"}})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"hidden": {"f": "new"}})
        make_tree(worktree, {"hidden": {"f": "old"}})
    with Shadow(worktree, settings={"min_free": 0, "heavy_dirs": ["hidden"]}) as shadow:
        shadow.undo()
        forgotten = record_two_and_forget(shadow, worktree)

        assert forgotten.messages == [("default", "m1")]
        assert shadow.check().problems == []


def test_what_an_act_wrote_where_no_rule_covers_it_is_kept_as_long_as_the_act(worktree: Path) -> None:
    make_tree(worktree, {"hidden": {"f": "old"}})
    with Shadow(worktree, settings={"min_free": 0}) as shadow, shadow.message("m1"):
        (worktree / "hidden" / "f").unlink()
    with Shadow(worktree, settings={"min_free": 0, "heavy_dirs": ["hidden"]}) as shadow:
        shadow.undo()
        forgotten = record_two_and_forget(shadow, worktree)

        assert (worktree / "hidden" / "f").read_text() == "old"
        assert forgotten.messages == [("default", "m1")]
        assert shadow.check().problems == []


def test_a_check_changes_nothing(recorded: Shadow) -> None:
    recorded.close()
    before = everything_in(recorded.store)

    with Shadow(recorded.worktree) as shadow:
        shadow.check(read_data=True)

    assert everything_in(recorded.store) == before


def test_where_nothing_is_recorded_nothing_is_damaged(worktree: Path) -> None:
    """The command line says that the directory is not wrapped."""
    assert Shadow(worktree).check().ok

    with pytest.raises(NotWrapped):
        Shadow(worktree).only_wrapped().check()


def test_progress_is_told_object_by_object(recorded: Shadow) -> None:
    told: list[tuple[int, int]] = []

    report = recorded.check(read_data=True, progress=lambda done, total: told.append((done, total)))

    assert told[-1] == (report.objects, report.objects)


@pytest.mark.usefixtures("large_packs")
def test_a_flipped_bit_in_a_pack_is_found_by_reading_it(recorded: Shadow) -> None:
    flip_in(packs_of(recorded)[1], 40)

    assert recorded.check().ok
    report = recorded.check(read_data=True)

    assert kinds(report) >= {"pack", "object"}
    assert "m1" in hurt(report)


@pytest.mark.usefixtures("large_packs")
def test_a_pack_that_ends_too_early_is_read_without_being_told_to(recorded: Shadow) -> None:
    """Its two ends show that it is damaged, but only its objects show which messages that hurts."""
    pack = packs_of(recorded)[3]
    os.truncate(pack, pack.stat().st_size // 2)

    report = recorded.check()

    (problem,) = (problem for problem in report.problems if problem.kind == "pack")
    assert problem.what == pack.name
    assert "damaged" in problem.message
    assert hurt(report) == ["m2", "m3"]


@pytest.mark.usefixtures("large_packs")
def test_only_the_messages_that_need_what_is_lost_are_hurt(recorded: Shadow, worktree: Path) -> None:
    lost = recorded.messages()[1].patch.files[0].new_blob
    assert lost is not None
    pack = packs_of(recorded)[3]
    git("--git-dir", recorded.store, "cat-file", "-e", lost)
    pack.unlink()

    report = recorded.check()

    assert kinds(report) == {"object"}
    assert hurt(report) == ["m2", "m3"]
    recorded.revert("m1", only=True, paths=["src/m1"])
    assert not (worktree / "src" / "m1").exists()


@pytest.mark.usefixtures("large_packs")
def test_what_is_lost_hurts_every_message_whose_tree_holds_it_at_any_depth_and_path(worktree: Path) -> None:
    def write(text: str) -> None:
        (worktree / "x").write_text(text)

    acts: dict[str, Callable[[], object]] = {
        "made": lambda: make_tree(worktree, {"a": {"b": {"c": {"deep": "lost\n"}}}}),
        "copied": lambda: shutil.copytree(worktree / "a" / "b", worktree / "other"),
        "one of them removed": lambda: shutil.rmtree(worktree / "a"),
        "still there": lambda: write("1"),
        "removed": lambda: shutil.rmtree(worktree / "other"),
        "without it": lambda: write("2"),
    }
    make_tree(worktree, {"x": ""})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.wrap()
        for name, act in acts.items():
            with shadow.message(name):
                act()
            if name == "made":
                pack = packs_of(shadow)[-1]
        pack.unlink()

        report = shadow.check()

    assert kinds(report) == {"object"}
    assert hurt(report) == sorted(name for name in acts if name != "without it")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("HEAD", "head"),
        ("config", "config"),
        ("shadowtree.json", "identity"),
        ("refs/heads/shadowtree", "ref"),
    ],
)
def test_small_files_are_made_anew(recorded: Shadow, name: str, kind: str) -> None:
    path = recorded.store / name
    before = path.read_bytes()
    recorded.close()
    path.write_bytes(b"")

    assert kinds(recorded.check()) <= {kind}
    report = recorded.repair()

    assert report.ok
    assert path.read_bytes() == before


def test_a_lost_identity_is_damage_and_no_empty_place(recorded: Shadow) -> None:
    recorded.close()
    (recorded.store / "shadowtree.json").unlink()

    with Shadow(recorded.worktree) as shadow:
        with pytest.raises(StoreDamaged):
            shadow.messages()
        with pytest.raises(StoreDamaged):
            shadow.track()
        assert kinds(shadow.check()) == {"identity"}
        assert shadow.repair().ok
        assert [message.id for message in shadow.messages()] == NAMES


@pytest.mark.parametrize("act", [Path.unlink, lambda path: path.write_bytes(b"no database")])
def test_a_store_without_a_timeline_is_told_of(recorded: Shadow, act: Callable[[Path], None]) -> None:
    recorded.close()
    act(recorded.store / "timeline.db")

    with Shadow(recorded.worktree) as shadow:
        assert "timeline" in kinds(shadow.check())
        assert "timeline" in kinds(shadow.repair())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET head = 1 WHERE message = 3",
        "UPDATE messages SET parent = 99 WHERE number = 2",
        "UPDATE events SET after_tree = 99 WHERE message = 2",
        "UPDATE changes SET old_mode = 7",
        "UPDATE changes SET new_mode = new_mode | 1 WHERE new_mode NOTNULL",
        "UPDATE changes SET path = x'63ff' WHERE path = x'63'",
        "DELETE FROM messages WHERE number = 2",
        "UPDATE trees SET tree = x'01' WHERE number = 2",
    ],
)
def test_rows_that_cannot_be_are_found(recorded: Shadow, statement: str) -> None:
    change_timeline(recorded, statement)

    assert "timeline" in kinds(recorded.check())


def damage_index(recorded: Shadow) -> None:
    """Replace an index by one that lacks rows: its entries look valid, so SQLite's check finds nothing."""
    change_timeline(recorded, "PRAGMA writable_schema = ON")
    with sqlite3.connect(recorded.store / "timeline.db") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX trees_by_id ON trees (facts)'"
            " WHERE name = 'trees_by_id'"
        )
    connection.close()


def test_a_damaged_index_of_the_timeline_is_written_anew(recorded: Shadow) -> None:
    damage_index(recorded)
    assert "timeline" in kinds(recorded.check())

    report = recorded.repair()

    assert report.ok, report.problems
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "timeline.db").exists()
    assert [message.id for message in recorded.messages()] == NAMES


def test_a_timeline_is_not_rewritten_while_its_log_is_needed(recorded: Shadow) -> None:
    """A kill right after the log was removed would lose the rows that are only there."""
    with closing(sqlite3.connect(recorded.store / "timeline.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchall()
        damage_index(recorded)
        report = recorded.repair()

    assert not report.ok
    assert "another process is reading it" in report.repaired[0]
    assert recorded.repair().ok
    assert [message.id for message in recorded.messages()] == NAMES


def hide(shadow: Shadow, kind: str) -> None:
    """Make an index of the timeline lack events of a kind, as a flipped bit may do."""
    shadow.close()
    with sqlite3.connect(shadow.store / "timeline.db") as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DROP INDEX events_by_message")
        connection.execute(f"CREATE INDEX events_by_message ON events (message) WHERE kind <> '{kind}'")
        connection.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX events_by_message ON events (message)'"
            " WHERE name = 'events_by_message'"
        )
    connection.close()


def test_a_message_whose_end_cannot_be_found_is_not_reverted(recorded: Shadow) -> None:
    hide(recorded, "end")

    with pytest.raises(StoreDamaged, match="how message 'm1' ended"):
        recorded.revert("m1", only=True)


def test_what_the_open_message_changed_is_not_taken_for_that_of_another(
    recorded: Shadow, worktree: Path
) -> None:
    recorded.begin("open")
    (worktree / "open").write_text("mine")
    hide(recorded, "end")

    with pytest.raises(StoreDamaged, match="how message 'm1' ended"):
        recorded.revert("m1", only=True)

    assert (worktree / "open").read_text() == "mine"


def test_a_step_whose_begin_cannot_be_found_is_damage(recorded: Shadow, worktree: Path) -> None:
    recorded.begin("open")
    with recorded.step("s1"):
        (worktree / "open").write_text("mine")
    hide(recorded, "step")

    with pytest.raises(StoreDamaged, match="how step 's1' began"):
        recorded.undo()

    assert (worktree / "open").read_text() == "mine"


def test_permissions_are_found_and_mended(recorded: Shadow) -> None:
    path = recorded.store / "cache.db"
    path.chmod(0o644)
    (recorded.store / "objects").chmod(0o755)

    assert kinds(recorded.check()) == {"permissions"}
    assert recorded.repair().ok

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


NOT_PRIVILEGED = [
    "setpriv",
    "--bounding-set=-dac_override,-dac_read_search",
    "--inh-caps=-dac_override,-dac_read_search",
]
"""Makes file modes apply even to root."""


def run_closed_out(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in a process to which file modes apply, without the daemon."""
    before = NOT_PRIVILEGED if os.geteuid() == 0 else []
    return subprocess.run(
        [*before, *COMMAND, *words], env=surroundings(), capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root reads everything")
@pytest.mark.parametrize(
    "name",
    [
        "",
        "shadowtree.json",
        "config",
        "HEAD",
        "lock",
        "timeline.db",
        "cache.db",
        "refs",
        "refs/heads/shadowtree",
        "objects",
        "objects/pack",
        "pack",
    ],
)
def test_what_its_owner_cannot_read_is_told_and_mended(terminal: Terminal, project: Path, name: str) -> None:
    store = Path(terminal.run_json("snapshot", "m1") and terminal.run_json("status")["store"])
    pack = next(store.glob("objects/pack/*.pack"))
    path = pack if name == "pack" else store / name
    named = str(path.relative_to(store))
    path.chmod(0)

    found = run_closed_out("check")
    foreseen = run_closed_out("check", "--repair", "--dry-run")
    repaired = run_closed_out("check", "--repair")

    assert found.returncode == foreseen.returncode == 15, found.stderr
    assert f"damaged  {named} has mode 0, not " in found.stdout
    assert f"planned  mode of {'the store' if named == '.' else named} set to " in foreseen.stdout
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert terminal.run("check").startswith("No problems found")


@pytest.mark.parametrize(("name", "mode"), [("config", 0o400), ("objects/pack", 0o500)])
def test_what_its_owner_cannot_write_is_told_and_mended(recorded: Shadow, name: str, mode: int) -> None:
    recorded.close()
    (recorded.store / name).chmod(mode)

    assert [problem.what for problem in recorded.check().problems] == [name]
    assert recorded.repair().ok


@pytest.mark.parametrize("name", ["config", "HEAD", "refs/heads/shadowtree", "shadowtree.json"])
def test_a_directory_in_the_place_of_a_small_file_is_told(recorded: Shadow, name: str) -> None:
    recorded.close()
    path = recorded.store / name
    path.unlink()
    path.mkdir(0o700)

    assert name in {problem.what for problem in recorded.check().problems}
    assert name in {problem.what for problem in recorded.repair().problems}


@pytest.mark.parametrize("name", ["HEAD", "another pack", "pack", "index", "derived"])
def test_nobody_waits_at_a_pipe_in_the_place_of_a_file(recorded: Shadow, name: str) -> None:
    """Opening a FIFO would wait forever."""
    recorded.close()
    pack = packs_of(recorded)[0]
    path = {
        "HEAD": recorded.store / "HEAD",
        "another pack": pack.with_stem(f"pack-{'0' * 40}"),
        "pack": pack,
        "index": pack.with_suffix(".idx"),
        "derived": pack.with_suffix(".rev"),
    }[name]
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)

    found = recorded.check(read_data=True)
    recorded.repair()

    named = str(path.relative_to(recorded.store))
    assert f"{named} is neither a file nor a directory" in {problem.message for problem in found.problems}


def test_leftovers_are_harmless_and_removed(recorded: Shadow) -> None:
    packs = recorded.store / "objects" / "pack"
    Path(name_temporary(str(packs))).write_bytes(b"half a pack")
    (packs / f"pack-{'0' * 40}.idx").write_bytes(b"alone")
    for path in packs.iterdir():
        path.chmod(0o600)

    report = recorded.check()

    assert report.ok
    assert {problem.kind for problem in report.harmless} == {"leftover"}
    assert recorded.repair().harmless == []


def test_what_does_not_belong_to_a_store_is_left_alone(recorded: Shadow) -> None:
    path = recorded.store / "notes.txt"
    path.write_text("mine")
    path.chmod(0o600)

    report = recorded.repair()

    assert report.ok
    assert [problem.kind for problem in report.harmless] == ["unknown"]
    assert path.read_text() == "mine"


def test_a_torn_cache_is_harmless_and_thrown_away(recorded: Shadow) -> None:
    recorded.close()
    (recorded.store / "cache.db").write_bytes(b"torn")

    report = recorded.check()

    assert report.ok
    assert [problem.kind for problem in report.harmless] == ["cache"]


@pytest.mark.usefixtures("no_tidying")
def test_a_journaled_pack_comes_back_from_the_timeline(recorded: Shadow) -> None:
    pack = packs_of(recorded)[-1]
    before = pack.read_bytes()
    recorded.close()
    flip_in(pack, 30)
    assert hurt(recorded.check(read_data=True)) == []

    report = recorded.repair()

    assert report.ok
    assert pack.read_bytes() == before
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "objects" / "pack" / pack.name).read_bytes() != before


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize("at", [5, -3], ids=["header", "checksum"])
def test_a_pack_whose_objects_are_all_whole_costs_nothing(recorded: Shadow, at: int) -> None:
    """What is whole in it makes a pack of the same name, which must not be taken for the damaged one."""
    recorded.close()
    for path in packs_of(recorded):
        flip_in(path, at)
        damaged = path.read_bytes()
        report = recorded.repair()

        assert report.ok
        assert hurt(recorded.check(read_data=True)) == []
        git("--git-dir", recorded.store, "fsck", "--full", "--strict")
        assert report.quarantine is not None
        assert (Path(report.quarantine) / "objects" / "pack" / path.name).read_bytes() == damaged


def test_a_missing_keep_of_a_journaled_pack_is_no_damage(recorded: Shadow) -> None:
    recorded.close()
    for path in packs_of(recorded):
        path.with_suffix(".keep").unlink()

    report = recorded.check()

    assert report.ok
    assert {problem.kind for problem in report.harmless} == {"keep"}


@pytest.mark.usefixtures("no_tidying")
def test_a_damaged_row_of_a_journaled_pack_goes_if_its_files_are_whole(recorded: Shadow) -> None:
    change_timeline(recorded, "UPDATE packs SET pack = x'00' WHERE number = 1")
    assert kinds(recorded.check()) == {"journaled"}

    assert recorded.repair().ok


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize(
    "act", [Path.unlink, lambda path: flip_in(path, 1100), lambda path: path.write_bytes(b"")]
)
def test_an_index_is_made_anew_from_its_pack(recorded: Shadow, act: Callable[[Path], None]) -> None:
    index = packs_of(recorded)[1].with_suffix(".idx")
    before = index.read_bytes()
    recorded.close()
    act(index)
    assert "index" in kinds(recorded.check())

    assert recorded.repair().ok

    assert index.read_bytes() == before


@pytest.mark.parametrize("suffix", [".idx", ".pack"])
def test_packs_of_git_with_deltas_are_mended_too(recorded: Shadow, worktree: Path, suffix: str) -> None:
    for number in range(12):
        (worktree / "c").write_text("".join(f"line {line} {line == number}\n" for line in range(50 + number)))
        recorded.track()
    old = packs_of(recorded)
    ids = git("--git-dir", recorded.store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    subprocess.run(
        [
            "git",
            "--git-dir",
            recorded.store,
            "pack-objects",
            "-q",
            "--no-reuse-delta",
            old[0].with_name("pack"),
        ],
        input=ids.encode(),
        check=True,
        capture_output=True,
    )
    change_timeline(recorded, "DELETE FROM packs")
    for path in old:
        for each in (".pack", ".idx", ".keep"):
            path.with_suffix(each).unlink()
    (pack,) = packs_of(recorded)
    assert "chain length" in git("verify-pack", "-v", pack)
    path = pack.with_suffix(suffix)
    path.chmod(0o600)
    flip_in(path, 1100 if suffix == ".idx" else pack.stat().st_size - 10)

    report = recorded.repair()

    assert report.ok, report.problems


@pytest.mark.usefixtures("large_packs")
def test_what_is_whole_in_a_damaged_pack_is_kept(recorded: Shadow, worktree: Path) -> None:
    """One blob is damaged and has no other copy; the old pack is in quarantine."""
    content = os.urandom(400)
    (worktree / "noise").write_bytes(content)
    recorded.track()
    pack = packs_of(recorded)[-1]
    flip_in(pack, pack.read_bytes().index(content[100:200]))
    (worktree / "noise").unlink()

    report = recorded.repair()

    assert kinds(report) == {"object"}
    assert hurt(report) == []
    assert len(report.problems) == 1
    assert report.quarantine is not None
    assert (Path(report.quarantine) / "objects" / "pack" / pack.name).exists()
    assert not pack.exists()
    (worktree / "noise").write_bytes(content)
    recorded.track()
    assert recorded.check(read_data=True).ok


@pytest.mark.usefixtures("large_packs")
def test_a_repair_that_was_killed_between_an_index_and_its_pack_is_done_by_the_next(
    recorded: Shadow, worktree: Path
) -> None:
    """The next repair writes the same pack again, so the lone index belongs to it."""
    content = os.urandom(400)
    (worktree / "noise").write_bytes(content)
    recorded.track()
    pack = packs_of(recorded)[-1]
    # Recorded here, because a repair would record it at another time each, in a pack of another name.
    (worktree / "noise").unlink()
    recorded.track()
    flip_in(pack, pack.read_bytes().index(content[100:200]))
    recorded.close()
    before = recorded.store.with_suffix(".before")
    shutil.copytree(recorded.store, before)
    expected = recorded.repair()
    recorded.close()
    made = [path for path in packs_of(recorded) if not (before / "objects" / "pack" / path.name).exists()]
    assert made
    for path in made:
        shutil.copy(path.with_suffix(".idx"), before / "objects" / "pack")
    shutil.rmtree(recorded.store)
    before.rename(recorded.store)

    report = recorded.repair()

    assert report.problems == expected.problems
    assert all(path.exists() and path.with_suffix(".idx").exists() for path in made)


@pytest.mark.usefixtures("large_packs", "aged")
def test_a_repair_heals_from_the_worktree(recorded: Shadow) -> None:
    """The packs of the last messages are removed, but their files still exist."""
    for pack in packs_of(recorded)[-1:]:
        pack.unlink()
    assert "m3" in hurt(recorded.check())

    report = recorded.repair()

    assert report.ok, report.problems
    recorded.revert("m3")
    recorded.unrevert()


@pytest.mark.usefixtures("large_packs", "aged")
@pytest.mark.parametrize("by_daemon", [False, True])
def test_damage_that_a_command_noticed_is_healed_by_the_next_snapshot(
    recorded: Shadow, worktree: Path, *, by_daemon: bool
) -> None:
    """The cache says that everything is stored, and the pack has its old stamp."""
    content = os.urandom(400)
    (worktree / "noise").write_bytes(content)
    with recorded.message("m4"):
        (worktree / "noise").chmod(0o600)
    pack = packs_of(recorded)[-2]
    flip_in(pack, pack.read_bytes().index(content[100:200]))
    recorded.close()
    with Shadow(worktree) as daemon:
        daemon.track()
        assert not daemon.check(read_data=True).ok
        with Shadow(worktree) as shadow, pytest.raises(StoreDamaged):
            shadow.diff("m3", "m4^")

        if by_daemon:
            daemon.track()
    with Shadow(worktree) as shadow:
        if not by_daemon:
            shadow.track()
        assert shadow.diff("m3", "m4^")
        assert kinds(shadow.check(read_data=True)) == {"pack"}
        assert shadow.repair().ok


def lose_object(shadow: Shadow, id: str) -> None:
    """Unpack the store into loose objects, and remove one of them."""
    shadow.close()
    aside = shadow.store.parent / "aside"
    aside.mkdir()
    for pack in packs_of(shadow):
        pack.with_suffix(".idx").unlink()
        with pack.rename(aside / pack.name).open("rb") as file:
            subprocess.run(["git", "--git-dir", shadow.store, "unpack-objects", "-q"], stdin=file, check=True)
    (shadow.store / "objects" / id[:2] / id[2:]).unlink()


@pytest.mark.usefixtures("large_packs")
def test_a_file_that_is_not_covered_any_more_heals_too(recorded: Shadow, worktree: Path) -> None:
    (worktree / ".gitignore").write_text("src/m2\n")
    recorded.track()
    lose_object(recorded, blob_id(b"of m2\n").hex())
    assert hurt(recorded.check()) == ["m2", "m3"]

    report = recorded.repair()

    assert report.ok, report.problems


@pytest.mark.usefixtures("large_packs")
def test_what_stays_lost_is_forgotten_if_that_is_wanted(recorded: Shadow) -> None:
    packs_of(recorded)[3].unlink()
    assert not recorded.repair().ok
    assert not recorded.check().ok

    report = recorded.repair(forget_lost=True)

    assert report.ok, report.problems
    assert [message.id for message in recorded.messages()] == ["m1"]
    git("--git-dir", recorded.store, "fsck", "--full", "--strict")
    assert recorded.restore("m1").complete


def test_a_dry_run_says_what_would_be_done(recorded: Shadow) -> None:
    recorded.close()
    (recorded.store / "HEAD").unlink()
    before = everything_in(recorded.store)

    report = recorded.repair(dry_run=True)

    assert report.dry_run
    assert report.repaired == ["HEAD rebuilt"]
    assert not report.ok
    assert everything_in(recorded.store) == before
    recorded.repair()


async def _check(worktree: Path) -> tuple[CheckReport, CheckReport]:
    async with AsyncShadow(worktree) as shadow:
        return await shadow.check(read_data=True), await shadow.repair(dry_run=True)


def test_asyncio_checks_too(recorded: Shadow) -> None:
    import asyncio

    checked, repaired = asyncio.run(_check(recorded.worktree))

    assert checked.ok
    assert repaired.dry_run


# The command line


def test_the_command_says_that_all_is_well(terminal: Terminal) -> None:
    terminal.run("wrap")

    out = terminal.run("check")

    assert out.startswith("No problems found: 1 tree checked, 0 objects read")
    assert terminal.run_json("check", "--read-data")["ok"] is True


def test_the_command_names_what_is_wrong_and_what_to_do(terminal: Terminal, project: Path) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    (store / "HEAD").unlink()

    out = terminal.run("check", exit_code=15)

    assert "damaged  HEAD does not name refs/heads/shadowtree" in out
    assert "shadowtree check --repair" in out
    assert terminal.run_json("check", exit_code=15)["problems"] == [
        {
            "kind": "head",
            "what": "HEAD",
            "message": "HEAD does not name refs/heads/shadowtree",
            "messages": [],
        }
    ]
    assert "planned  HEAD rebuilt" in terminal.run("check", "--repair", "--dry-run", exit_code=15)
    assert "repaired  HEAD rebuilt" in terminal.run("check", "--repair")
    assert terminal.run("check").startswith("No problems found")


@pytest.mark.parametrize("more", [(), ("--json",), ("--repair", "--dry-run")], ids=" ".join)
def test_a_check_that_fails_says_so_in_one_line_on_standard_error(
    terminal: Terminal, project: Path, more: tuple[str, ...]
) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    (store / "HEAD").unlink()

    terminal.run("check", *more, exit_code=15)

    assert terminal.err == "shadowtree: the store is damaged: 1 problem\n"


@pytest.mark.usefixtures("large_packs")
def test_the_command_names_the_messages_that_are_hurt(terminal: Terminal, project: Path) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    terminal.run("begin", "first")
    (project / "a.txt").write_text("other\n")
    terminal.run("end")
    newest = max((store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_mtime_ns)
    newest.unlink()

    out = terminal.run("check", exit_code=15)

    assert "; affects first" in out
    assert "  first in session default" in out


def test_the_command_works_without_an_identity(terminal: Terminal, tmp_path: Path) -> None:
    store = tmp_path / "elsewhere"
    terminal.run("--store", str(store), "wrap")
    (store / "shadowtree.json").write_bytes(b"{")

    problems = terminal.run_json("--store", str(store), "check", exit_code=15)["problems"]

    assert [problem["kind"] for problem in problems] == ["identity"]
    terminal.run("--store", str(store), "log", exit_code=15)
    terminal.run("--store", str(store), "check", "--repair")


def test_after_a_repair_the_same_is_not_proposed_again(terminal: Terminal, project: Path) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    (store / "timeline.db").write_bytes(b"")

    assert "shadowtree check --repair" in terminal.run("check", exit_code=15)
    out = terminal.run("check", "--repair", exit_code=15)

    assert "shadowtree check --repair" not in out
    assert "The rest could not be repaired" in out


def test_a_store_whose_identity_cannot_be_proved_is_to_be_adopted(terminal: Terminal, project: Path) -> None:
    store = Path(terminal.run_json("wrap")["store"])
    (store / "shadowtree.json").write_bytes(b"")
    (store / "config").write_bytes(b"")

    advice = f"shadowtree wrap {project} --adopt {store}"
    assert advice in terminal.run("check", "--repair", exit_code=15)

    terminal.run("wrap", "--adopt", str(store))
    terminal.run("check")


def test_what_was_found_is_told_while_somebody_else_is_at_work(recorded: Shadow) -> None:
    recorded.close()
    (recorded.store / "HEAD").unlink()

    with (
        Lock(str(recorded.store / "lock"), 0),
        Shadow(recorded.worktree, settings={"lock_timeout": 0.01}) as shadow,
    ):
        report = shadow.check()

    assert kinds(report) == {"head"}
    assert [problem.kind for problem in report.harmless] == ["locked"]
    assert "could not be verified again" in report.harmless[0].message


def test_a_timeline_that_another_program_has_locked_is_a_failure_and_no_damage(
    recorded: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.close()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with closing(sqlite3.connect(recorded.store / "timeline.db")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreFailed, match="database is locked"):
            recorded.check()

    assert recorded.check().ok


def test_a_dry_run_is_of_a_repair(terminal: Terminal) -> None:
    terminal.run("wrap")

    terminal.run("check", "--dry-run", exit_code=2)


def test_what_an_act_without_files_noted_need_not_be_stored(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"f": "0"})
    shadow.wrap()
    for number in (1, 2):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"f": f"{number}"})
    make_tree(worktree, {"f": "mine"})
    shadow.revert("m2", files=False)
    for number in (4, 5):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"f": f"{number}"})
    shadow.forget(keep_last=2)

    assert shadow.check(read_data=True).ok
