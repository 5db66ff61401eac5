"""Sessions on several machines: pushed, fetched into an empty store, resumed, joined."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree import Conflict, ShadowError
from tests.conversation.exports import ODD, tell_history
from tests.remote.machines import Machine, fsck, list_refs, make_server
from tests.support.referee import git


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return make_server(tmp_path / "server.git")


@pytest.fixture
def laptop(tmp_path: Path, server: Path) -> Machine:
    return Machine(tmp_path / "laptop", str(server))


@pytest.fixture
def desktop(tmp_path: Path, server: Path) -> Machine:
    return Machine(tmp_path / "desktop", str(server))


@pytest.fixture
def third(tmp_path: Path, server: Path) -> Machine:
    return Machine(tmp_path / "third", str(server))


def tell_story(machine: Machine) -> None:
    machine.tell("m1", {"a.txt": "one\n", "src/b.py": "b = 1\n"}, role="user")
    machine.tell("m2", {"a.txt": "two\n", "src/c.py": "c = 1\n"}, role="assistant")
    machine.tell("m3", {"src/b.py": None}, role="user")


def test_the_log_on_the_server_reads_as_the_conversation(laptop: Machine, server: Path) -> None:
    tell_story(laptop)

    pushed = laptop.push()

    assert pushed.sessions == ["default"]
    (line,) = list_refs(server, "refs/heads")
    assert git("--git-dir", server, "log", "--reverse", "--format=%s", line).splitlines() == [
        "text of m1",
        "text of m2",
        "text of m3",
    ]
    trailers = git("--git-dir", server, "log", "-1", "--format=%(trailers)", line)
    assert trailers.splitlines()[:3] == [
        "Shadowtree-Id: m3",
        "Shadowtree-Role: user",
        "Shadowtree-Session: default",
    ]
    assert fsck(server) == ""


def test_trees_are_the_same_on_both_sides(laptop: Machine, server: Path) -> None:
    tell_story(laptop)
    laptop.push()

    (line,) = list_refs(server, "refs/heads")
    trees = git("--git-dir", server, "log", "--reverse", "--format=%T", line).split()
    assert trees == [message["after"] for message in laptop.log()]
    assert git("--git-dir", server, "show", f"{line}:src/c.py") == "c = 1"


def test_a_fetch_into_an_empty_store_gives_the_same_log(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()

    fetched = desktop.fetch()

    assert [(each.session, each.messages) for each in fetched.sessions] == [("default", ["m1", "m2", "m3"])]
    assert desktop.log() == laptop.log()
    assert desktop.files() == {}
    desktop.check()


def test_a_history_with_branches_and_acts_arrives_whole(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    with laptop.open() as shadow:
        shadow.undo()
    laptop.tell("m4", {"d.txt": "d\n"}, role="user")
    with laptop.open() as shadow:
        shadow.revert("m2", only=True)
        shadow.pin("m4")
    laptop.push()

    desktop.fetch()

    assert desktop.log() == laptop.log()
    with laptop.open() as here, desktop.open() as there:
        assert [branch.to_dict() for branch in there.branches()] == [b.to_dict() for b in here.branches()]
    desktop.check()


def test_a_second_fetch_brings_only_what_is_new_and_the_log_stays_the_same(
    laptop: Machine, desktop: Machine
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.fetch()
    with laptop.open() as shadow:
        shadow.undo()
    laptop.tell("m4", {"d.txt": "d\n"}, role="user")
    with laptop.open() as shadow:
        shadow.undo()
        shadow.redo()
    laptop.push()

    fetched = desktop.fetch()

    assert [each.messages for each in fetched.sessions] == [["m4"]]
    assert desktop.log() == laptop.log()
    assert desktop.fetch().sessions == []
    desktop.check()


def test_nothing_new_is_not_pushed_again(laptop: Machine) -> None:
    tell_story(laptop)
    laptop.push()

    assert laptop.push().refs == []


def test_only_what_is_missing_is_sent(laptop: Machine) -> None:
    for number in range(40):
        laptop.tell(f"m{number}", {f"dir{number % 7}/f{number}": f"{number}\n" * 50})
    laptop.push()
    laptop.tell("last", {"dir1/f1": "changed\n"})

    pushed = laptop.push()

    assert pushed.bytes < 20_000


def test_a_session_goes_on_elsewhere_with_undo_and_redo(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()

    resumed = desktop.resume()

    assert (resumed.session, resumed.head) == ("default", "m3")
    assert desktop.files() == laptop.files()
    with desktop.open() as shadow:
        assert shadow.undo().messages == ["m3"]
    assert desktop.files() == {"a.txt": "two\n", "src/b.py": "b = 1\n", "src/c.py": "c = 1\n"}
    with desktop.open() as shadow:
        shadow.redo()
        assert shadow.undo(3).messages == ["m1", "m2", "m3"]
    assert desktop.files() == {}
    desktop.check()


def test_after_a_resume_there_is_nothing_to_unrevert(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()

    with desktop.open() as shadow:
        outcome = shadow.unrevert()

    assert outcome.notes[0].startswith("nothing to unrevert")
    assert desktop.files() == laptop.files()


def test_a_session_can_be_resumed_at_an_earlier_message(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()

    resumed = desktop.resume(session="default", at="m1")

    assert resumed.head == "m1"
    assert desktop.files() == {"a.txt": "one\n", "src/b.py": "b = 1\n"}
    with desktop.open() as shadow:
        shadow.redo(None)
    assert desktop.files() == laptop.files()


def test_an_equal_directory_is_resumed_and_another_one_is_in_conflict(
    laptop: Machine, desktop: Machine
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.worktree.mkdir(parents=True)
    (desktop.worktree / "a.txt").write_text("mine\n")

    with pytest.raises(Conflict) as caught:
        desktop.resume()

    assert [conflict.path for conflict in caught.value.conflicts] == ["a.txt"]
    assert desktop.files() == {"a.txt": "mine\n"}
    (desktop.worktree / "a.txt").write_text("two\n")
    desktop.resume()
    assert desktop.files() == laptop.files()


def test_two_machines_with_the_same_session_name_do_not_meet(
    laptop: Machine, desktop: Machine, server: Path
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.tell("n1", {"x": "x\n"})
    desktop.push()

    assert len(list_refs(server, "refs/shadowtree")) == 2
    fetched = desktop.fetch()

    (session,) = [each.session for each in fetched.sessions]
    assert session.startswith("default@")
    assert desktop.ids() == ["n1"]
    assert desktop.ids(session) == ["m1", "m2", "m3"]
    with desktop.open() as shadow:
        assert shadow.undo().messages == ["n1"]
    desktop.check()


def test_what_both_recorded_is_kept_and_the_other_one_becomes_a_branch(
    laptop: Machine, desktop: Machine, third: Machine, server: Path
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()
    laptop.tell("here", {"a.txt": "by the laptop\n"}, role="user")
    desktop.tell("there", {"a.txt": "by the desktop\n", "new.txt": "new\n"}, role="user")
    laptop.push()
    desktop.push()

    (fetched,) = laptop.fetch().sessions
    desktop.fetch()
    third.fetch()

    assert fetched.messages == ["there"]
    assert laptop.ids(state="active") == ["m1", "m2", "m3", "here"]
    assert laptop.ids(state="archived") == ["there"]
    assert desktop.ids(state="active") == ["m1", "m2", "m3", "there"]
    assert desktop.ids(state="archived") == ["here"]
    assert third.ids(state="archived") == ["there"], "the later one"
    assert fsck(server) == ""
    for machine in (laptop, desktop, third):
        machine.check()


def test_one_can_switch_to_what_the_other_machine_did_and_back(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()
    laptop.tell("here", {"a.txt": "by the laptop\n"}, role="user")
    desktop.tell("there", {"a.txt": "by the desktop\n", "new.txt": "new\n"}, role="user")
    desktop.push()
    (fetched,) = laptop.fetch().sessions
    before = laptop.files()

    with laptop.open() as shadow:
        shadow.switch(fetched.branch)
    assert laptop.files() == desktop.files()
    with laptop.open() as shadow:
        shadow.undo()
        shadow.switch("here")
    assert laptop.files() == before
    with laptop.open() as shadow:
        assert shadow.undo(2).messages == ["m3", "here"]
        shadow.redo(None)
    assert laptop.files() == before
    laptop.check()


def test_two_machines_go_on_taking_turns(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()
    desktop.tell("d1", {"a.txt": "d1\n"})
    desktop.push()
    (fetched,) = laptop.fetch().sessions
    with laptop.open() as shadow:
        shadow.switch(fetched.branch or "")
    laptop.tell("l1", {"a.txt": "l1\n"})
    laptop.push()
    (fetched,) = desktop.fetch().sessions

    assert fetched.messages == ["l1"]
    with desktop.open() as shadow:
        shadow.switch("l1")
    assert desktop.files() == laptop.files()
    assert desktop.ids(state="active") == laptop.ids(state="active") == ["m1", "m2", "m3", "d1", "l1"]
    laptop.check()
    desktop.check()


def test_a_fetched_session_disturbs_nothing_that_is_undone_here(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.tell("n1", {"a.txt": "mine\n"}, session="mine")
    desktop.fetch()

    with desktop.open("mine") as shadow:
        assert shadow.for_last_session().session == "mine"
        assert shadow.undo().messages == ["n1"]
    assert desktop.files() == {}


def test_a_new_message_does_not_continue_a_session_that_was_only_fetched(
    laptop: Machine, desktop: Machine
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.fetch()

    desktop.tell("n1", {"x": "x\n"})

    assert desktop.ids() == ["n1"]
    with desktop.open() as shadow:
        (other,) = [each.id for each in shadow.sessions() if each.id != "default"]
    assert desktop.ids(other) == ["m1", "m2", "m3"]


def test_texts_stay_here_unless_you_ask(laptop: Machine, desktop: Machine, server: Path) -> None:
    tell_story(laptop)
    with laptop.open() as shadow:
        shadow.undo()
    laptop.tell("m4", {"e": "e\n"}, meta={"secret": "s3cret", "agent": "x"})
    laptop.push(text=False)

    desktop.fetch()

    everything = git("--git-dir", server, "cat-file", "--batch-all-objects", "--batch")
    assert "text of" not in everything
    assert "text-of" not in everything
    assert "s3cret" not in everything
    assert {message["text"] for message in desktop.log()} == {""}
    assert desktop.ids() == ["m1", "m2", "m3", "m4"]


def test_paths_are_left_out_by_pattern(laptop: Machine, desktop: Machine, server: Path) -> None:
    laptop.settings = {"push_exclude": ".env,secret/"}
    laptop.tell(
        "m1", {"a": "a\n", ".env": "KEY=hunter2\n", "secret/key": "hunter3\n", "sub/.env": "hunter4\n"}
    )
    laptop.tell("m2", {"a": "b\n", ".env": "KEY=hunter5\n"})
    laptop.push()

    desktop.resume()

    everything = git("--git-dir", server, "cat-file", "--batch-all-objects", "--batch")
    assert "hunter" not in everything
    assert desktop.files() == {"a": "b\n"}
    (desktop.worktree / ".env").write_text("mine\n")
    with desktop.open() as shadow:
        shadow.undo(2)
    assert desktop.files() == {".env": "mine\n"}


def test_a_remote_that_is_not_there_is_one_line(laptop: Machine) -> None:
    tell_story(laptop)
    laptop.url += "-not"

    with pytest.raises(ShadowError) as caught:
        laptop.push()

    assert "\n" not in str(caught.value)


def test_a_store_that_was_copied_loses_nothing(laptop: Machine, tmp_path: Path, server: Path) -> None:
    """Then two stores write the same ref: the first push is fetched, and becomes a branch."""
    import shutil

    tell_story(laptop)
    laptop.push()
    copy = Machine(tmp_path / "copy", str(server))
    shutil.copytree(laptop.top, copy.top)
    from shadowtree import Shadow

    Shadow.adopt(copy.worktree, copy.store).close()
    copy.tell("by-copy", {"z": "z\n"})
    copy.push()
    laptop.tell("by-laptop", {"y": "y\n"})
    laptop.push()

    assert sorted(laptop.ids()) == ["by-copy", "by-laptop", "m1", "m2", "m3"]
    assert laptop.ids(state="active")[-1] == "by-laptop"
    laptop.check()


def test_texts_that_were_pushed_stay_and_later_ones_do_not_follow(laptop: Machine, server: Path) -> None:
    laptop.tell("m1", {"a": "1\n"})
    laptop.push(text=True)
    laptop.tell("m2", {"a": "2\n"})
    laptop.push(text=None)

    (line,) = list_refs(server, "refs/heads")
    log = git("--git-dir", server, "log", "--reverse", "--format=%s", line).splitlines()
    assert log[-2:] == ["text of m1", "message m2"]


def test_everything_that_can_be_recorded_arrives_exactly(laptop: Machine, desktop: Machine) -> None:
    """Modes, links, names, empty directories, steps, pins, branches, forgotten messages, sessions."""
    laptop.worktree.mkdir(parents=True)
    tell_history(laptop.worktree, laptop.store)
    laptop.push()

    desktop.fetch()

    for session in ("default", ODD):
        with laptop.open(session) as here, desktop.open(session) as there:
            assert [m.to_dict() for m in there.messages()] == [m.to_dict() for m in here.messages()]
            assert [b.to_dict() for b in there.branches()] == [b.to_dict() for b in here.branches()]
            for message in here.messages():
                mine, theirs = here.show(message.id)[0], there.show(message.id)[0]
                assert mine.patch.to_dict() == theirs.patch.to_dict()
                assert [s.to_dict() for s in mine.steps] == [s.to_dict() for s in theirs.steps]
    desktop.check()
    with desktop.open() as shadow:
        shadow.restore("m1")
    assert (desktop.worktree / "private").stat().st_mode & 0o777 == 0o600
    assert (desktop.worktree / "ln").is_symlink()
    assert (desktop.worktree / "empty").is_dir()


def test_what_is_fetched_during_a_turn_is_in_nobodys_way(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()
    desktop.tell("there", {"a.txt": "by the desktop\n", "new.txt": "new\n"}, role="user")
    desktop.push()
    with laptop.open() as shadow:
        shadow.begin("here", role="user")
        (laptop.worktree / "a.txt").write_text("by the laptop\n")
        shadow.remotes.fetch()
        (laptop.worktree / "more.txt").write_text("more\n")
        message = shadow.end("here")

    assert [file.path for file in message.patch.files] == ["a.txt", "more.txt"]
    assert laptop.ids(state="archived") == ["there"]
    with laptop.open() as shadow:
        assert shadow.undo().messages == ["here"]
    assert laptop.files() == {"a.txt": "two\n", "src/c.py": "c = 1\n"}
    laptop.check()


def test_a_turn_that_goes_on_elsewhere_is_seen_and_followed(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    with laptop.open() as shadow:
        shadow.begin("long", role="user")
        with shadow.step("first"):
            (laptop.worktree / "a.txt").write_text("half\n")
        laptop.push()
        desktop.fetch()
        assert desktop.ids(state="open") == ["long"]
        shadow.end("long")
    laptop.push()
    desktop.fetch()

    assert desktop.log() == laptop.log()
    desktop.tell("mine", {"x": "x\n"}, session="mine")
    with desktop.open("mine") as shadow:
        shadow.undo()


def test_after_forgetting_the_rest_still_travels(laptop: Machine, desktop: Machine, third: Machine) -> None:
    for number in range(6):
        laptop.tell(f"m{number}", {"a": f"{number}\n", f"f{number}": "x\n"})
    laptop.push()
    desktop.fetch()
    with laptop.open() as shadow:
        shadow.forget(keep_last=3)
    laptop.tell("m6", {"a": "6\n"})
    laptop.push()

    desktop.fetch()
    third.fetch()

    assert third.log() == laptop.log()
    assert desktop.ids()[-1] == "m6"
    third.check()
    desktop.check()


def test_the_same_id_on_two_machines_is_two_messages(laptop: Machine, desktop: Machine) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.resume()
    laptop.tell("next", {"a.txt": "by the laptop\n"})
    desktop.tell("next", {"a.txt": "by the desktop\n"})
    desktop.push()

    laptop.fetch()
    laptop.fetch()

    ids = laptop.ids()
    assert len(ids) == 5
    assert ids[4].startswith("next~")
    with laptop.open() as shadow:
        shadow.switch(ids[4])
    assert laptop.files() == desktop.files()


def test_a_session_that_was_dropped_here_comes_back_only_if_you_resume_it(
    laptop: Machine, desktop: Machine
) -> None:
    tell_story(laptop)
    laptop.push()
    desktop.fetch()
    with desktop.open() as shadow:
        shadow.drop_session("default", force=True)

    assert desktop.fetch().sessions == []
    assert desktop.log() == []
    desktop.resume()
    assert desktop.files() == laptop.files()
