"""Purging: a secret is removed from every tree and every file of the store, and nothing else is."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from shadowtree import (
    Conflict,
    InvalidInput,
    NotConfirmed,
    Purged,
    Shadow,
    StoreDamaged,
    UnknownName,
    UnknownTree,
)
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.store.git_format import blob_id
from tests.support.referee import assert_sound_store, files_in, git
from tests.support.searching import find_bytes, find_objects
from tests.support.stores import SETTINGS, assert_records_whole
from tests.support.trees import link, make_tree

_chance = random.Random(7)
SECRETS = [bytes(_chance.choices(b"abcdefghijkmnpqrstuvwxyz23456789", k=40)) for _ in range(4)]
CONTENTS = [
    b"".join(b"SETTING_%d=%d\n" % (line, line * line) for line in range(60)) + b"API_KEY=%b\n" % secret
    for secret in SECRETS
]
"""Versions of one file, each with a different secret."""


def text(number: int) -> str:
    return "".join(f"line {line} of {number if line == 30 else 0}\n" for line in range(60))


def tell(shadow: Shadow, worktree: Path, count: int = 12) -> dict[str, str]:
    """Record messages that write, change and mention a secret; return a.txt after each."""
    make_tree(worktree, {"a.txt": text(0), "conf": {"b.txt": "b", "c": "c"}})
    shadow.wrap()
    states = {}
    for number in range(count):
        secret = SECRETS[number % len(SECRETS)].decode()
        with shadow.message(f"m{number}", text=f"the key is {secret}!", meta={"said": [f'"{secret}"']}):
            (worktree / "a.txt").write_text(text(number + 1))
            (worktree / "conf" / "key.env").write_bytes(CONTENTS[number % len(CONTENTS)])
        states[f"m{number}"] = text(number + 1)
    return states


def assert_nowhere(store: Path) -> None:
    """Assert that no file of the store contains any of the secrets, and that the store is sound."""
    assert find_bytes(store, SECRETS, CONTENTS) == []
    assert not find_objects(store, SECRETS)
    assert_records_whole(store)
    assert_sound_store(store)


def git_gc(store: Path) -> None:
    """Make real git put everything into its own packs, and leave some objects loose."""
    git("--git-dir", store, "gc", "--quiet", "--prune=now")
    for pack in list((store / "objects" / "pack").glob("*.pack"))[:1]:
        moved = store / "moved.pack"
        pack.rename(moved)
        pack.with_suffix(".idx").unlink()
        with moved.open("rb") as file:
            subprocess.run(["git", "--git-dir", str(store), "unpack-objects", "-q"], stdin=file, check=True)
        moved.unlink()
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def sweep(shadow: Shadow) -> None:
    shadow.gc()


def forget(shadow: Shadow) -> None:
    """Forget without freeing: what only forgotten messages needed is still there."""
    shadow.pin("m3")
    shadow.forget(keep_last=2, gc=False)


def leave_things(shadow: Shadow) -> None:
    """Leave files that others may leave: copies, an unfinished pack, refs and logs of git."""
    store = shadow.store
    shadow.close()
    make_tree(store, {"quarantine": {"1": {"pack": CONTENTS[0]}}})
    (store / "objects" / "pack" / "tmp_pack_abc").write_bytes(CONTENTS[1])
    (store / "objects" / "pack" / "shadowtree-tmp-1").write_bytes(CONTENTS[1])
    git("--git-dir", store, "tag", "mine", "refs/heads/shadowtree")
    git("--git-dir", store, "update-ref", "ORIG_HEAD", "refs/heads/shadowtree")
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


LAYOUTS: dict[str, Callable[[Shadow], object]] = {
    "journaled packs": lambda shadow: None,
    "parts": sweep,
    "packs of git": lambda shadow: git("--git-dir", shadow.store, "gc", "--quiet", "--prune=now"),
    "loose objects": lambda shadow: git_gc(shadow.store),
    "forgotten": forget,
    "leftovers": leave_things,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_afterwards_the_bytes_are_nowhere_in_the_store(shadow: Shadow, worktree: Path, layout: str) -> None:
    states = tell(shadow, worktree)
    LAYOUTS[layout](shadow)
    assert find_bytes(shadow.store, SECRETS)
    assert find_bytes(shadow.store, [], CONTENTS) or layout == "packs of git"
    assert find_objects(shadow.store, SECRETS)

    purged = shadow.purge("conf/key.env")

    assert_nowhere(shadow.store)
    assert purged.paths == ["conf/key.env"]
    assert set(purged.blobs) == {blob_id(content).hex() for content in CONTENTS}
    assert purged.complete
    assert purged.removed > 0
    for name in ("m3", "m10", "m11"):
        shadow.restore(name)
        assert (worktree / "a.txt").read_text() == states[name]
    assert (worktree / "conf" / "key.env").read_bytes() == CONTENTS[11 % 4]
    shadow.track()
    assert_nowhere(shadow.store)
    assert shadow.check(read_data=True).problems == []


@pytest.mark.limits(Limits(packs=PackLimits(many=3, much_bytes=300, slice_records=1, part_bytes=1_000)))
def test_merged_packs_and_those_that_snapshots_write_anew_lose_it_too(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 30)

    shadow.purge("conf/key.env")

    assert_nowhere(shadow.store)


def test_large_contents_go_and_stay_away(large_packs: None, shadow: Shadow, worktree: Path) -> None:
    secret = _chance.randbytes(40)
    large = _chance.randbytes(3 << 20) + secret
    make_tree(worktree, {"a": "a", "large.bin": large})
    shadow.track()

    shadow.purge("large.bin", everywhere=True)
    make_tree(worktree, {"copy.bin": large})
    taken = shadow.wrap()

    assert [(skip.path, skip.reason) for skip in taken.skipped] == [
        ("copy.bin", "purged"),
        ("large.bin", "purged"),
    ]
    assert files_in(shadow.store, taken.tree) == ["a"]
    assert all(path.stat().st_size < 1 << 20 for path in shadow.store.rglob("*"))


# Reports


def skips(found: object) -> list[tuple[str, str]]:
    return [(skip.path, skip.reason) for skip in getattr(found, "skipped")]  # noqa: B009 - messages, patches, outcomes


def test_messages_tell_of_it_no_more_and_their_trees_have_other_ids(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    before = {message.id: message for message in shadow.messages()}

    purged = shadow.purge("conf/key.env")

    after = {message.id: message for message in shadow.messages()}
    assert purged.messages == [("default", "m0"), ("default", "m1"), ("default", "m2")]
    assert [message.text for message in after.values()] == ["the key is [purged]!"] * 3
    assert after["m1"].meta == {"said": ['"[purged]"']}
    assert [changed.path for changed in after["m1"].patch.files] == ["a.txt"]
    assert skips(after["m0"].patch) == [("conf/key.env", "not recorded after: purged")]
    assert skips(after["m1"].patch) == [("conf/key.env", "not recorded before: purged")]
    assert after["m0"].before == before["m0"].before, "it was not there yet"
    assert after["m1"].before == after["m0"].after != before["m0"].after
    assert [diff.path for diff in shadow.diff("m1^", "m1")] == ["a.txt"]
    with pytest.raises(UnknownTree):
        shadow.restore(str(before["m0"].after))


def test_acts_leave_the_file_alone_and_say_so(shadow: Shadow, worktree: Path) -> None:
    states = tell(shadow, worktree, 3)
    key = worktree / "conf" / "key.env"
    shadow.purge("conf/key.env")
    key.write_text("edited since")

    back = shadow.revert("m1")
    assert (worktree / "a.txt").read_text() == states["m0"]
    assert (back.restored, skips(back)) == (["a.txt"], [("conf/key.env", "not recorded before: purged")])
    forward = shadow.redo()
    assert skips(forward) == [("conf/key.env", "not recorded after: purged")]
    for outcome in (shadow.redo(), shadow.undo(), shadow.unrevert(), shadow.switch("m0")):
        assert "conf/key.env" not in (*outcome.restored, *outcome.deleted)
    shadow.restore(str(shadow.messages()[2].after))

    assert (worktree / "a.txt").read_text() == states["m2"]
    assert key.read_text() == "edited since"
    assert_nowhere(shadow.store)


def test_the_state_after_a_purge_is_the_one_that_the_next_snapshot_takes(
    shadow: Shadow, worktree: Path
) -> None:
    tell(shadow, worktree, 3)
    shadow.purge("conf/key.env")
    last = shadow.messages()[-1].after

    taken = shadow.wrap()

    assert taken.tree == last
    assert skips(taken) == [("conf/key.env", "purged")]
    assert (taken.files, files_in(shadow.store, taken.tree)) == (3, ["a.txt", "conf/b.txt", "conf/c"])


@pytest.mark.parametrize("is_gone", [False, True], ids=["still there", "deleted"])
def test_a_message_that_made_only_the_secret_reverts_and_leaves_it(
    shadow: Shadow, worktree: Path, is_gone: bool
) -> None:
    """The message also created the directory, which still contains the secret."""
    make_tree(worktree, {"a": "a"})
    with shadow.message("m1"):
        make_tree(worktree, {"new": {"key": CONTENTS[0]}})
    shadow.purge("new/key")
    if is_gone:
        (worktree / "new" / "key").unlink()

    shadow.revert("m1")

    assert (worktree / "new" / "key").exists() is not is_gone
    assert (worktree / "new").exists() is not is_gone


@pytest.mark.parametrize("how", ["abort", "overwrite"])
def test_an_act_that_it_is_in_the_way_of_stops_and_does_not_store_it(
    shadow: Shadow, worktree: Path, how: Literal["abort", "overwrite"]
) -> None:
    """A replaced file must be in the store first, and this one must not be."""
    make_tree(worktree, {"conf": "a file once", "key": {"is": "a directory once"}})
    first = shadow.track()
    for name in ("conf", "key"):
        shutil.move(worktree / name, worktree.parent / name)
    make_tree(worktree, {"conf": {"key": CONTENTS[0]}, "key": CONTENTS[1]})
    shadow.track()
    shadow.purge("conf/key")
    shadow.purge(blob_id(CONTENTS[1]).hex())

    with pytest.raises(Conflict) as caught:
        shadow.restore(first, on_conflict=how)

    assert {conflict.path for conflict in caught.value.conflicts} >= {"conf"}
    assert (worktree / "conf" / "key").read_bytes() == CONTENTS[0]
    assert (worktree / "key").read_bytes() == CONTENTS[1]
    shadow.track()
    assert_nowhere(shadow.store)


def test_what_was_purged_is_unknown_and_not_absent_when_it_is_covered_again(
    shadow: Shadow, worktree: Path
) -> None:
    """By I7: its state then is not known, so it must not be called absent."""
    tell(shadow, worktree, 3)
    shadow.purge("conf/key.env")
    shadow.allow("conf/key.env")
    make_tree(worktree, {"conf": {"key.env": "the only copy"}})
    shadow.track()

    outcome = shadow.restore("m0")

    assert (outcome.restored, outcome.deleted) == (["a.txt"], [])
    assert skips(outcome) == [("conf/key.env", "not recorded in the tree: purged")]
    assert (worktree / "conf" / "key.env").read_text() == "the only copy"


def test_a_pinned_message_and_an_open_one_lose_it_too(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    shadow.pin("m1")
    shadow.begin("open", text=SECRETS[0].decode())

    shadow.purge("conf/key.env")
    make_tree(worktree, {"a.txt": "of the open one"})

    assert [changed.path for changed in shadow.end("open").patch.files] == ["a.txt"]
    assert_nowhere(shadow.store)


# Contents


def test_the_same_bytes_at_other_paths_stay_and_are_told(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"key": CONTENTS[0], "sub": {"copy": CONTENTS[0]}, "a": "a"})
    tree = shadow.track()

    purged = shadow.purge("key")

    assert (purged.also_at, purged.complete) == (["sub/copy"], False)
    assert purged.left == [blob_id(CONTENTS[0]).hex()]
    assert find_objects(shadow.store, SECRETS)
    with pytest.raises(UnknownTree):
        shadow.patch(tree)

    again = shadow.purge(purged.left[0])

    assert (again.paths, again.complete) == (["sub/copy"], True)
    assert_nowhere(shadow.store)
    assert skips(shadow.wrap()) == [("key", "purged"), ("sub/copy", "purged")]


def test_everywhere_takes_the_same_bytes_wherever_they_are_and_will_be(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"key": CONTENTS[0], "sub": {"copy": CONTENTS[0]}, "a": "a"})
    shadow.track()

    purged = shadow.purge("key", everywhere=True)
    make_tree(worktree, {"later": CONTENTS[0], "other": "other", "ln": link("a")})
    taken = shadow.wrap()

    assert purged.paths == ["key", "sub/copy"]
    assert skips(taken) == [("key", "purged"), ("later", "purged"), ("sub/copy", "purged")]
    assert files_in(shadow.store, taken.tree) == ["a", "ln", "other"]
    assert_nowhere(shadow.store)


def test_a_content_goes_by_its_id_and_other_versions_of_the_path_stay(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"conf": "harmless 1"})
    shadow.wrap()
    for name, content in (("m1", CONTENTS[0]), ("m2", b"harmless 2"), ("m3", b"harmless 3")):
        with shadow.message(name):
            make_tree(worktree, {"conf": content})

    shadow.purge(blob_id(CONTENTS[0]).hex())

    assert shadow.check(read_data=True).problems == []
    assert_nowhere(shadow.store)
    skipped = {message.id: skips(message.patch) for message in shadow.messages()}
    assert skipped == {
        "m1": [("conf", "not recorded after: purged")],
        "m2": [("conf", "not recorded before: purged")],
        "m3": [],
    }
    shadow.revert("m3")
    assert (worktree / "conf").read_text() == "harmless 2"
    shadow.restore("m1^")
    assert (worktree / "conf").read_text() == "harmless 1"


def test_going_back_over_a_purged_version_is_no_conflict(shadow: Shadow, worktree: Path) -> None:
    """Both messages once knew it. That its content is unknown now does not make it somebody else's edit."""
    make_tree(worktree, {"conf": "harmless 1", "b": "b"})
    shadow.wrap()
    for name, content in (("m1", b"harmless 2"), ("m2", CONTENTS[0]), ("m3", b"harmless 3")):
        with shadow.message(name):
            make_tree(worktree, {"conf": content, "b": name})
    shadow.purge(blob_id(CONTENTS[0]).hex())

    outcome = shadow.revert("m1")
    assert (worktree / "conf").read_text() == "harmless 1"
    assert (outcome.restored, outcome.complete) == (["b", "conf"], True)
    shadow.redo(None)
    assert (worktree / "conf").read_text() == "harmless 3"
    back = shadow.revert("m2")

    assert (back.restored, skips(back)) == (["b"], [("conf", "not recorded after: purged")])
    assert (worktree / "conf").read_text() == "harmless 3"
    assert shadow.check(read_data=True).problems == []
    assert_nowhere(shadow.store)


def test_what_an_act_kept_of_a_file_that_no_rule_covers_goes_too(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "a"})
    with shadow.message("m1"):
        make_tree(worktree, {"key": "first"})
    make_tree(worktree, {".gitignore": "key\n", "key": CONTENTS[0]})
    shadow.revert("m1", on_conflict="overwrite")
    assert find_objects(shadow.store, SECRETS)

    shadow.purge("key")

    assert shadow.check(read_data=True).problems == []
    assert_nowhere(shadow.store)


def test_a_directory_goes_with_all_that_is_below_it(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"conf": {"a": CONTENTS[0], "sub": {"b": CONTENTS[1], "none": {}}}, "conf.txt": "c"})
    with shadow.message("m1"):
        make_tree(worktree, {"conf": {"a": CONTENTS[2]}, "d": "d"})

    purged = shadow.purge("conf/")

    assert purged.paths == ["conf/a", "conf/sub/b"]
    assert shadow.check(read_data=True).problems == []
    assert_nowhere(shadow.store)
    taken = shadow.wrap()
    assert (skips(taken), files_in(shadow.store, taken.tree)) == ([("conf", "purged")], ["conf.txt", "d"])
    shadow.revert("m1")
    assert (worktree / "conf" / "a").read_bytes() == CONTENTS[2]
    assert not (worktree / "d").exists()


@pytest.mark.parametrize("name", [".gitignore", ".shadowtreeignore", "sub/.gitignore"])
def test_rules_are_purged_by_what_they_say_and_leave_nothing_absent(
    shadow: Shadow, worktree: Path, name: str
) -> None:
    """Their texts are also in the facts. What they left out must not become absent."""
    rules = b"ignored\n# %b\n" % SECRETS[0]
    make_tree(worktree, {"sub": {"a": "a"}, "b": "b"})
    (worktree / name).write_bytes(rules)
    first = shadow.track()
    (worktree / name).write_bytes(b"ignored\n")
    with shadow.message("m1"):
        make_tree(worktree, {"b": "c"})
    (worktree / "sub" / "ignored").write_text("mine")

    shadow.purge(name)

    assert_nowhere(shadow.store)
    with pytest.raises(UnknownTree):
        shadow.restore(first)
    shadow.restore("m1^")
    assert (worktree / "b").read_text() == "b"
    assert (worktree / "sub" / "ignored").read_text() == "mine"
    (worktree / name).write_bytes(rules)
    assert skips(shadow.wrap()) == [(name, "purged")]
    assert_nowhere(shadow.store)


def test_an_empty_file_is_purged_by_its_path_alone(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"key": "", "other": ""})
    shadow.track()

    purged = shadow.purge("key", everywhere=True)

    assert (purged.paths, purged.blobs, purged.complete) == (["key"], [], True)
    assert files_in(shadow.store, shadow.track()) == ["other"]
    with pytest.raises(InvalidInput, match="empty or very common files, not a secret"):
        shadow.purge(blob_id(b"").hex())


# Texts of messages


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        ('{"user": "bob", "token": "sk-SECRETJSON987"}', "sk-SECRETJSON987"),
        ("KEY=sk-SECRETCOMM123 # prod", "sk-SECRETCOMM123"),
        ("export DB=postgres://bob:SECRETPGPASS77@db/x", "postgres://bob:SECRETPGPASS77@db/x"),
        ("correct horse battery", "correct horse battery"),
    ],
    ids=["several pairs", "comment", "address", "line"],
)
def test_what_messages_say_loses_a_secret_wherever_it_stood_in_its_file(
    shadow: Shadow, worktree: Path, content: str, secret: str
) -> None:
    with shadow.message("m1", text=f"the key is {secret}", meta={"key": [secret]}):
        make_tree(worktree, {"key": content})

    purged = shadow.purge("key")

    assert purged.notes == []
    (message,) = shadow.messages()
    assert (message.text, message.meta) == ("the key is [purged]", {"key": ["[purged]"]})
    assert not find_bytes(shadow.store, [secret.encode()])


def test_a_role_is_no_secret_because_a_purged_file_names_it(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1", role="assistant"):
        make_tree(worktree, {"prompt.yaml": "role: assistant\n"})

    shadow.purge("prompt.yaml")

    assert [message.role for message in shadow.messages()] == ["assistant"]


TOKEN = "ghp_ZZZZZZZZ0123456789"


def test_what_messages_say_loses_what_a_large_content_held(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1", text=f"token {TOKEN} in the log", meta={"used": [TOKEN]}, role=f"tool {TOKEN}"):
        make_tree(worktree, {"dump.log": b"2026 INFO nothing of interest\n" * 43_000 + TOKEN.encode()})

    purged = shadow.purge("dump.log")

    assert (purged.complete, purged.notes) == (True, [])
    (message,) = shadow.messages()
    assert (message.text, message.meta) == ("token [purged] in the log", {"used": ["[purged]"]})
    assert message.role == "[purged]"
    assert not find_bytes(shadow.store, [TOKEN.encode()])


def test_what_is_only_like_a_line_or_value_stays(shadow: Shadow, worktree: Path) -> None:
    text = "document DATABASE_PASSWORD, and rotate ghp_ZZZZZZZZ0123"
    with shadow.message("m1", text=text):
        make_tree(worktree, {".env": f"export DATABASE_PASSWORD={TOKEN}\nshort=1\n"})

    shadow.purge(".env")

    assert shadow.messages()[0].text == text


def test_a_text_is_purged_from_all_that_messages_say(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "a"})
    shadow.wrap()
    with shadow.message("m1", text=f"use {TOKEN} now", meta={"n": 1, "key": [TOKEN], f"a {TOKEN}": None}):
        make_tree(worktree, {"a": "b"})
    shadow.undo()
    with shadow.message("m2", text="other"):
        make_tree(worktree, {"a": "c"})

    planned = shadow.purge(text=TOKEN, dry_run=True)
    purged = shadow.purge(text=TOKEN)

    assert (purged.complete, purged.messages, purged.paths) == (True, [("default", "m1")], [])
    assert planned.messages == purged.messages
    assert [branch.name for branch in shadow.branches()] == ["use-purged-now"]
    shadow.switch("use-purged-now")
    message = shadow.messages()[0]
    assert (message.text, message.meta) == (
        "use [purged] now",
        {"n": 1, "key": ["[purged]"], "a [purged]": None},
    )
    assert not find_bytes(shadow.store, [TOKEN.encode()])
    assert shadow.check(read_data=True).ok


def test_files_that_hold_a_purged_text_are_named_and_go_only_everywhere(
    shadow: Shadow, worktree: Path
) -> None:
    with shadow.message("m1", text=f"use {TOKEN} now, in the middle"):
        make_tree(worktree, {"log": f"x{TOKEN}y\nin the middle\n", "a": "a"})

    purged = shadow.purge(text=TOKEN)

    assert (purged.complete, purged.also_at) == (False, ["log"])
    assert (worktree / "log").exists()
    assert [change.path for change in shadow.messages()[0].patch.files] == ["a", "log"]

    again = shadow.purge(text=TOKEN, everywhere=True)

    assert (again.complete, again.paths) == (True, ["log"])
    assert shadow.messages()[0].text == "use [purged] now, in the middle"
    assert not find_bytes(shadow.store, [TOKEN.encode()])


def test_an_id_that_holds_a_purged_text_makes_it_incomplete(shadow: Shadow, worktree: Path) -> None:
    """Even a word of letters alone, which would not count as a line of a file."""
    make_tree(worktree, {"a": "a"})
    shadow.snapshot("with-hunter")

    purged = shadow.purge(text="hunter")

    assert (purged.complete, purged.names) == (False, ["with-hunter"])


@pytest.mark.parametrize("text", ["", "abc"])
def test_a_text_of_a_few_characters_is_refused(shadow: Shadow, worktree: Path, text: str) -> None:
    make_tree(worktree, {"a": "a"})
    shadow.snapshot("m1", text="abc")

    with pytest.raises(InvalidInput):
        shadow.purge(text=text)


def test_a_text_that_nothing_holds_is_unknown(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "a"})
    shadow.snapshot("m1", text="something else")

    with pytest.raises(UnknownName, match="nothing recorded contains this text"):
        shadow.purge(text=TOKEN)


KEY = "sk_live_51HxYzQpLmNoRsTuV"
SLUG = "sk-live-51hxyzqplmnorstuv"


def archive(shadow: Shadow, worktree: Path, *texts: str) -> list[str]:
    """Record a message with each text, and archive it as a branch; return the names."""
    make_tree(worktree, {"a": "a", ".env": f"KEY={KEY}\n"})
    shadow.wrap()
    for number, said in enumerate(texts):
        with shadow.message(f"m{number}", text=said):
            make_tree(worktree, {"a": f"a{number}"})
        shadow.undo()
    with shadow.message("last"):
        make_tree(worktree, {"a": "last"})
    return names_of(shadow)


def names_of(shadow: Shadow) -> list[str]:
    return [branch.name for branch in shadow.branches()]


def test_branches_that_are_named_after_a_secret_get_other_names(shadow: Shadow, worktree: Path) -> None:
    """The names are slugs of texts: lower-case letters and dashes, cut to a length."""
    texts = [
        f"use {KEY} now",
        f"Use {KEY}: now",
        f"for the new server use {KEY}",
        f"now use no key, not {KEY}",
    ]
    names = archive(shadow, worktree, *texts, "purged", "use keys")
    assert [SLUG[:8] in name for name in names] == [True] * 4 + [False] * 2

    purged = shadow.purge(".env")

    assert names_of(shadow) == [
        "use-purged-now",
        "use-purged-now-2",
        "for-the-new-server-use-purged",
        "now-use-no-key-not-purged",
        "purged",
        "use-keys",
    ]
    assert purged.complete
    assert purged.notes[0] == "a branch whose name contained it was renamed to 'use-purged-now'"
    assert not find_bytes(shadow.store, [KEY.encode(), SLUG[:12].encode()])
    shadow.switch("use-purged-now-2")
    assert (worktree / "a").read_text() == "a1"


def test_the_list_of_refs_that_git_makes_for_web_servers_loses_it_too(shadow: Shadow, worktree: Path) -> None:
    archive(shadow, worktree, f"use {KEY} now")
    shadow.repo.close()
    git("--git-dir", shadow.store, "gc", "--quiet")
    assert SLUG[:12] in (shadow.store / "info" / "refs").read_text()

    shadow.purge(".env")

    assert not find_bytes(shadow.store, [KEY.encode(), SLUG[:12].encode()])


@pytest.mark.parametrize(
    ("given", "left"),
    [(f"with {KEY}", "with purged"), (f"with-{SLUG}-9", "with-purged-9"), (KEY, "purged-2")],
    ids=["as it is", "slug", "called like a message"],
)
def test_a_name_that_a_user_gave_to_a_branch_loses_it_too(
    shadow: Shadow, worktree: Path, given: str, left: str
) -> None:
    (name,) = archive(shadow, worktree, "use keys")
    shadow.rename_branch(name, given)
    shadow.snapshot("purged")

    shadow.purge(".env")

    assert names_of(shadow) == [left]
    assert not find_bytes(shadow.store, [KEY.encode(), SLUG.encode()])


def test_a_branch_loses_it_whose_text_was_forgotten_and_one_that_was_dropped(
    shadow: Shadow, worktree: Path
) -> None:
    dropped, _ = archive(shadow, worktree, f"use {KEY} now", f"wherever there is a server use {KEY}")
    shadow.drop_branch(dropped)
    shadow.forget(keep_last=1, gc=False)
    assert find_bytes(shadow.store, [SLUG[:12].encode()])

    shadow.purge(".env")

    assert not find_bytes(shadow.store, [SLUG[:12].encode()])


def test_ids_and_sessions_that_hold_it_stay_and_make_it_incomplete(worktree: Path) -> None:
    """Other programs use them; but the bytes are still there, so the purge must report that."""
    with Shadow(worktree, session=f"of {KEY}", settings=SETTINGS) as shadow:
        with shadow.message(f"m-{KEY}", text=f"use {KEY}"):
            make_tree(worktree, {".env": f"KEY={KEY}\nmode=production\n", "a": "a"})
        shadow.snapshot("production")

        planned = shadow.purge(".env", dry_run=True)
        purged = shadow.purge(".env")

        assert [message.id for message in shadow.messages()] == [f"m-{KEY}", "production"]
        assert shadow.messages()[0].text == "use [purged]"
    assert (purged.complete, purged.names) == (False, [f"m-{KEY}", f"of {KEY}"])
    assert purged.notes == planned.notes
    assert purged.notes == [
        f"message ids that contain part of it stay, because other programs use them: m-{KEY}",
        f"session names that contain part of it stay, because other programs use them: of {KEY}",
    ]


def test_of_many_ids_some_are_named_in_the_note_and_all_in_the_result(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"log": "".join(f"id: run-{number:05}\n" for number in range(12345, 12359))})
    for number in range(12345, 12359):
        shadow.snapshot(f"run-{number}")

    purged = shadow.purge("log")

    (note,) = purged.notes
    assert note.endswith(", run-12354 and 4 more")
    assert purged.names == [f"run-{number}" for number in range(12345, 12359)]


def lose(store: Path, content: bytes) -> None:
    """Lose a content that a recorded tree needs."""
    git_gc(store)
    name = blob_id(content).hex()
    (store / "objects" / name[:2] / name[2:]).unlink()


def test_a_content_that_nobody_can_read_makes_it_incomplete(worktree: Path) -> None:
    """Messages cannot be searched for its lines."""
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1", text="rotated the key just now"):
            make_tree(worktree, {"key": CONTENTS[0], "a": "a"})
        shadow.gc()
    lose(shadow.store, CONTENTS[0])

    with Shadow(worktree, settings=SETTINGS) as shadow:
        purged = shadow.purge("key")

    name = blob_id(CONTENTS[0]).hex()
    assert (purged.complete, purged.unread) == (False, [name])
    assert purged.notes == [f"{name} cannot be read, so messages may still repeat parts of it"]


def test_who_cannot_finish_says_how_far_it_came(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 2)
    pack = shadow.store / "objects" / "pack" / f"pack-{'0' * 40}.pack"
    pack.write_bytes(b"nobody can read this")
    pack.chmod(0o600)

    with pytest.raises(StoreDamaged, match=r"a pack cannot be read.*; conf/key\.env is gone from every tree"):
        shadow.purge("conf/key.env")

    pack.unlink()
    shadow.track()
    assert shadow.recovered[-1] == "an interrupted purge was finished"
    assert_nowhere(shadow.store)


# Confirmation


def test_it_asks_first_and_can_be_looked_at(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)
    before = [message.after for message in shadow.messages()]
    asked: list[Purged] = []

    def refuse(planned: Purged) -> bool:
        asked.append(planned)
        return False

    seen = shadow.purge("conf/key.env", dry_run=True)
    with pytest.raises(NotConfirmed, match=r"remove conf/key\.env from everything"):
        shadow.purge("conf/key.env", confirm=refuse)

    assert asked == [seen]
    assert (seen.paths, seen.trees, seen.dry_run) == (["conf/key.env"], 3, True)
    assert [message.after for message in shadow.messages()] == before
    assert find_objects(shadow.store, SECRETS)


def test_others_record_while_it_asks(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 3)

    def record(planned: Purged) -> bool:
        with Shadow(worktree, session="other", settings={"lock_timeout": 0}) as other:
            other.snapshot("meanwhile")
        return True

    assert shadow.purge("conf/key.env", confirm=record).paths == ["conf/key.env"]
    assert shadow.for_session("other").messages()[0].id == "meanwhile"
    assert not find_objects(shadow.store, SECRETS)


@pytest.mark.parametrize("what", ["no/such", "a.txt/x", "0" * 40])
def test_what_the_store_does_not_know_changes_nothing(shadow: Shadow, worktree: Path, what: str) -> None:
    tell(shadow, worktree, 2)

    with pytest.raises(UnknownName):
        shadow.purge(what)
    with pytest.raises(UnknownName):
        shadow.allow(what)

    assert shadow.wrap().skipped == []


@pytest.mark.parametrize("what", [".", "", "../elsewhere", "/"])
def test_what_is_no_path_in_the_worktree_is_refused(shadow: Shadow, worktree: Path, what: str) -> None:
    tell(shadow, worktree, 1)

    with pytest.raises(InvalidInput):
        shadow.purge(what)


def test_the_id_of_a_tree_is_no_content(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 1)

    with pytest.raises(InvalidInput, match="is not the content of a file"):
        shadow.purge(shadow.track())


def test_the_same_again_says_that_it_is_done(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 2)
    shadow.purge("conf/key.env")

    again = shadow.purge("conf/key.env")

    assert (again.paths, again.notes) == ([], ["conf/key.env has already been purged"])


# After the purge


def test_what_is_allowed_again_is_covered_from_the_next_snapshot_on(shadow: Shadow, worktree: Path) -> None:
    tell(shadow, worktree, 2)
    shadow.purge("conf/key.env", everywhere=True)
    shadow.track()

    allowed = shadow.allow("conf/key.env")
    with shadow.message("m9"):
        (worktree / "conf" / "key.env").write_bytes(b"new")

    assert allowed == ["conf/key.env", *sorted(blob_id(content).hex() for content in CONTENTS[:2])]
    assert shadow.messages()[-1].skipped == []
    assert [changed.path for changed in shadow.messages()[-1].patch.files] == ["conf/key.env"]
    shadow.revert("m9")
    assert (worktree / "conf" / "key.env").read_bytes() == CONTENTS[1]


@pytest.mark.parametrize("is_watching", [False, True], ids=["", "watched"])
@pytest.mark.parametrize("by_content", [False, True], ids=["path", "content"])
def test_no_snapshot_stores_it_again_whoever_purged(
    worktree: Path, is_watching: bool, by_content: bool, aged: None
) -> None:
    """Another process purges, while this one has the file in its cache, and perhaps in its census."""
    with Shadow(worktree, settings=SETTINGS, watch=is_watching) as shadow:
        tell(shadow, worktree, 4)
        shadow.track()
        with Shadow(worktree, settings=SETTINGS) as other:
            other.purge(blob_id(CONTENTS[3]).hex() if by_content else "conf/key.env")
        left = [(skip.path, skip.reason) for skip in shadow.wrap().skipped]
        make_tree(worktree, {"a.txt": "changed", "conf": {"key.env": CONTENTS[3]}})
        shadow.snapshot("m8")
        cold = Shadow(worktree, store=shadow.store, settings=SETTINGS)
        (shadow.store / "cache.db").unlink()

        assert left == [("conf/key.env", "purged")]
        assert cold.wrap().tree == shadow.messages()[-1].after
        assert not find_objects(shadow.store, SECRETS[3:])
        with Shadow(worktree, settings=SETTINGS) as other:
            other.allow(blob_id(CONTENTS[3]).hex() if by_content else "conf/key.env")
        assert shadow.wrap().skipped == []
        cold.close()
    assert_sound_store(shadow.store)
