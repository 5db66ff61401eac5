"""The user's repositories as git itself sees them; the tests run git, the library never does."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shadowtree.capture.rules import git_repository as repositories
from shadowtree.capture.rules.git_repository import (
    Repository,
    Tracked,
    find_around,
    find_at,
    index_stamp,
    parse_config,
    read_exclude,
    read_global_excludes,
    read_head,
    read_tracked,
)
from tests.support.patience import comes_back

VERSIONS = pytest.mark.parametrize("version", [2, 3, 4])
ENTRY_HEAD = b"\0" * 24 + (0o100644).to_bytes(4, "big") + b"\0" * 32
NO_CHECKSUM = b"\0" * 20
"""The checksum that git writes with `index.skipHash`: then the parser has to find damage."""


class Git:
    """A repository made by git, with only the test's settings."""

    def __init__(self, top: Path, *options: str) -> None:
        self.top = top
        self.home = top.parent / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.org",
        }
        top.mkdir(parents=True, exist_ok=True)
        self("init", "-q", "-b", "main", *options)

    def __call__(self, *args: str, stdin: bytes = b"", cwd: Path | None = None) -> bytes:
        command = ["git", "-c", "protocol.file.allow=always", *args]
        done = subprocess.run(
            command, cwd=cwd or self.top, env=self.env, input=stdin, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, files: dict[str, str]) -> str:
        self.write(files)
        self("add", "-A")
        self("commit", "-q", "-m", "x")
        return self("rev-parse", "HEAD").decode().strip()

    def add_names(self, names: list[bytes]) -> None:
        """Put names into the index without making the files."""
        blob = self("hash-object", "-w", "--stdin", stdin=b"x").strip()
        lines = b"".join(b"100644 " + blob + b"\t" + name + b"\0" for name in names)
        self("update-index", "-z", "--index-info", stdin=lines)

    def tracked(self, cwd: Path | None = None) -> list[bytes]:
        """Return what git tracks: files and links, each once."""
        entries = self("ls-files", "-z", "-s", "--sparse", cwd=cwd).split(b"\0")[:-1]
        return sorted({entry.partition(b"\t")[2] for entry in entries if entry.startswith((b"100", b"120"))})

    def write_index(self, content: bytes) -> None:
        (self.top / ".git" / "index").write_bytes(content)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return Git(tmp_path / "repo")


def at(top: Path) -> Repository:
    repository = find_at(os.fsencode(top))
    assert repository is not None
    return repository


def assert_reads_as_git(git: Git, top: Path | None = None) -> Tracked:
    tracked = read_tracked(at(top or git.top))

    assert tracked.problem is None
    assert tracked.names == git.tracked(cwd=top)
    return tracked


# Finding repositories


def test_a_repository_is_found_at_its_top_and_from_below(git: Git) -> None:
    (git.top / "a" / "b").mkdir(parents=True)
    top = os.fsencode(git.top)

    assert find_at(top) == Repository(top, top + b"/.git", top + b"/.git")
    assert next(find_around(top + b"/a/b")) == find_at(top)
    assert find_at(top + b"/a") is None


def test_the_nearest_repository_comes_first(git: Git) -> None:
    inner = Git(git.top / "vendor" / "inner")
    (inner.top / "src").mkdir()

    found = list(find_around(os.fsencode(inner.top / "src")))

    assert found[:2] == [at(inner.top), at(git.top)]


def test_no_repository_is_found_up_to_the_root(tmp_path: Path) -> None:
    found = find_around(os.fsencode(tmp_path))

    assert not any(repository.top.startswith(os.fsencode(tmp_path)) for repository in found)
    assert not list(find_around(b"/")) or os.path.exists("/.git")


def test_a_bare_repository_is_none(tmp_path: Path) -> None:
    bare = Git(tmp_path / "x.git", "--bare")
    (tmp_path / "around").mkdir()
    (tmp_path / "around" / ".git").write_text("gitdir: ../x.git\n")

    assert find_at(os.fsencode(bare.top)) is None
    assert find_at(os.fsencode(tmp_path / "around")) is None


@pytest.mark.parametrize("missing", ["HEAD", "objects", "refs"])
def test_a_git_directory_with_a_part_missing_is_none(git: Git, missing: str) -> None:
    (git.top / ".git" / missing).rename(git.top / "moved")

    assert find_at(os.fsencode(git.top)) is None


@pytest.mark.parametrize(
    "content", [b"", b"gitdir: nowhere\n", b"../other", b"gitdir: a\0b", b"gitdir: " + b"x" * 5000]
)
def test_a_git_file_that_leads_nowhere_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)

    assert find_at(os.fsencode(tmp_path)) is None


@pytest.mark.parametrize("head", [b"", b"nonsense", b"ref: elsewhere"])
def test_a_git_directory_whose_head_makes_no_sense_is_none(git: Git, head: bytes) -> None:
    (git.top / ".git" / "HEAD").write_bytes(head)

    assert find_at(os.fsencode(git.top)) is None


def test_a_pipe_in_place_of_a_file_does_not_block(git: Git) -> None:
    (git.top / ".git" / "HEAD").unlink()
    os.mkfifo(git.top / ".git" / "HEAD")

    assert find_at(os.fsencode(git.top)) is None


def test_a_link_to_a_git_directory_is_followed(git: Git) -> None:
    git.commit({"a": "1"})
    (git.top / ".git").rename(git.top.parent / "elsewhere.git")
    (git.top / ".git").symlink_to("../elsewhere.git")

    assert_reads_as_git(git)


def test_a_linked_worktree_has_its_own_index_and_shares_the_rest(git: Git) -> None:
    git.commit({"a": "1"})
    linked = git.top.parent / "linked"
    git("worktree", "add", "-q", "-b", "side", str(linked))
    (linked / "b").write_text("2")
    git("add", "b", cwd=linked)
    (git.top / ".git" / "info" / "exclude").write_text("*.o\n")

    assert_reads_as_git(git, linked)
    assert at(linked).git_dir == os.fsencode(git.top / ".git" / "worktrees" / "linked")
    assert at(linked).common_dir == os.fsencode(git.top / ".git")
    assert read_exclude(at(linked)) == b"*.o\n"
    assert read_tracked(at(git.top)).names == [b"a"]


def test_a_submodule_is_a_repository_and_no_file_of_the_one_around(git: Git) -> None:
    other = Git(git.top.parent / "other")
    other.commit({"lib.c": "1"})
    git("submodule", "add", "-q", str(other.top), "vendor/other")

    tracked = assert_reads_as_git(git)
    assert tracked.names == [b".gitmodules"]
    assert read_tracked(at(git.top / "vendor" / "other")).names == [b"lib.c"]
    assert at(git.top / "vendor" / "other").git_dir == os.fsencode(git.top / ".git/modules/vendor/other")


# Reading the index


def test_a_repository_without_an_index_tracks_nothing(git: Git) -> None:
    tracked = assert_reads_as_git(git)

    assert tracked == Tracked.of(())
    assert index_stamp(at(git.top)) is None


@VERSIONS
def test_files_links_and_strange_names_are_tracked(git: Git, version: int) -> None:
    git.write({"a": "1", "a.b/c": "2", "d e\nf/g": "3", "long/" + "x" * 200: "4"})
    (git.top / "link").symlink_to("nowhere")
    (git.top / os.fsdecode(b"caf\xe9")).write_text("5")
    git("add", "-A")
    git("update-index", "--index-version", str(version))

    assert_reads_as_git(git)


@VERSIONS
def test_twenty_thousand_names_are_read_in_every_version(git: Git, version: int) -> None:
    git.add_names([b"src/%03d/%s%05d.py" % (n % 150, b"d" * (n % 40), n) for n in range(20_000)])
    git("update-index", "--index-version", str(version))

    assert len(assert_reads_as_git(git).names) == 20_000


@VERSIONS
def test_a_name_longer_than_its_length_field_can_tell_is_read(git: Git, version: int) -> None:
    names = [b"a" * length for length in (4093, 4094, 4095, 4096, 5000)]
    git.add_names([*names, b"b/" + b"c" * 5000, b"d"])
    git("update-index", "--index-version", str(version))

    assert_reads_as_git(git)


@VERSIONS
def test_a_name_that_drops_more_than_one_byte_can_tell_is_read(git: Git, version: int) -> None:
    """The number of dropped bytes takes two bytes from 128 on, three from 16512 on."""
    git.add_names([b"a/" + b"x" * dropped + b"/%d" % dropped for dropped in (120, 127, 128, 300, 17_000)])
    git("update-index", "--index-version", str(version))

    assert_reads_as_git(git)


def test_version_4_builds_each_name_on_the_one_before(git: Git) -> None:
    git.add_names([b"src/paths.py", b"src/patience.py"])
    git("update-index", "--index-version", "4")

    assert b"\x05ience.py\0" in (git.top / ".git" / "index").read_bytes()
    assert assert_reads_as_git(git).names == [b"src/paths.py", b"src/patience.py"]


@VERSIONS
def test_a_file_added_with_intent_only_is_tracked(git: Git, version: int) -> None:
    git.write({"a": "1", "b": "2", "c": "3"})
    git("add", "a", "c")
    git("add", "-N", "b")
    git("update-index", "--index-version", str(version))

    assert assert_reads_as_git(git).has(b"b")


@VERSIONS
def test_a_file_in_conflict_is_tracked_once(git: Git, version: int) -> None:
    git.commit({"a": "1", "b": "1"})
    git("checkout", "-q", "-b", "side")
    git.commit({"a": "2"})
    git("checkout", "-q", "main")
    git.commit({"a": "3"})
    with pytest.raises(AssertionError):
        git("merge", "-q", "side")
    git("update-index", "--index-version", str(version))

    assert assert_reads_as_git(git).names == [b"a", b"b"]


def test_a_directory_of_a_sparse_index_is_no_file(git: Git) -> None:
    git.commit({"in/a": "1", "out/b": "2", "out/deep/c": "3", "top": "4"})
    git("sparse-checkout", "set", "--cone", "--sparse-index", "in")

    assert assert_reads_as_git(git).names == [b"in/a", b"top"]


@VERSIONS
def test_a_split_index_is_read_with_the_one_it_links_to(git: Git, version: int) -> None:
    git.commit({f"{n:03}": "x" for n in range(300)})
    git("update-index", "--index-version", str(version))
    git("config", "splitIndex.maxPercentChange", "100")
    git("update-index", "--split-index")
    assert_reads_as_git(git)

    git.write({"new": "1", "000": "changed", "250": "changed too"})
    (git.top / "100").unlink()
    (git.top / "100").symlink_to("000")
    for n in range(120, 220):
        (git.top / f"{n:03}").unlink()
    git("add", "-A")

    assert b"sharedindex" in b"".join(os.listdir(os.fsencode(git.top / ".git")))
    assert b"link" in (git.top / ".git" / "index").read_bytes()
    assert len(assert_reads_as_git(git).names) == 201


def test_a_split_index_deletes_replaces_and_adds(git: Git) -> None:
    git.commit({"a": "1", "b": "2", "c": "3", "d": "4"})
    git("config", "splitIndex.maxPercentChange", "100")
    git("update-index", "--split-index")
    git.write({"c": "changed", "e": "5"})
    (git.top / "b").unlink()
    git("add", "-A")

    assert assert_reads_as_git(git).names == [b"a", b"c", b"d", b"e"]


def test_a_file_that_a_split_index_makes_a_submodule_is_no_file_any_more(git: Git) -> None:
    commit = git.commit({"a": "1", "b": "2", "c": "3"})
    git("config", "splitIndex.maxPercentChange", "100")
    git("update-index", "--split-index")
    git("update-index", "--add", "--cacheinfo", f"160000,{commit},b", "--cacheinfo", f"160000,{commit},d")

    assert assert_reads_as_git(git).names == [b"a", b"c"]


def test_a_split_index_whose_shared_one_is_gone_is_a_problem(git: Git) -> None:
    git.commit({"a": "1"})
    git("update-index", "--split-index")
    stamp = index_stamp(at(git.top))
    for shared in (git.top / ".git").glob("sharedindex.*"):
        shared.unlink()

    tracked = read_tracked(at(git.top))

    assert tracked.names == []
    assert tracked.problem == "the git index cannot be read: the shared index it refers to is missing"
    assert index_stamp(at(git.top)) != stamp


def test_a_repository_of_sha256_ids_is_read(tmp_path: Path) -> None:
    git = Git(tmp_path / "repo", "--object-format=sha256")
    commit = git.commit({"a": "1", "b/c": "2"})

    assert assert_reads_as_git(git).names == [b"a", b"b/c"]
    assert read_head(at(git.top)) == commit


@VERSIONS
def test_an_index_cut_short_anywhere_is_a_problem_and_no_error(git: Git, version: int) -> None:
    git.commit({"a": "1", "b/c": "2", "b/cd": "3"})
    git("update-index", "--index-version", str(version))
    content = (git.top / ".git" / "index").read_bytes()
    repository = at(git.top)

    for size in range(len(content)):
        for cut in (content[:size], content[:size] + NO_CHECKSUM):
            git.write_index(cut)
            tracked = read_tracked(repository)
            # An index without its extensions is still complete.
            assert tracked.problem is not None or tracked.names == [b"a", b"b/c", b"b/cd"]
            assert tracked.problem is None or (tracked.names == [] and "\n" not in tracked.problem)


@VERSIONS
@pytest.mark.parametrize("is_split", [False, True])
def test_an_index_with_any_byte_changed_raises_nothing(git: Git, version: int, is_split: bool) -> None:
    git.commit({"a": "1", "b/c": "2", "b/cd": "3"})
    git("update-index", "--index-version", str(version))
    if is_split:
        git("update-index", "--split-index")
        git("rm", "-q", "--cached", "a")
    content = (git.top / ".git" / "index").read_bytes()[:-20]
    repository = at(git.top)

    for position in range(len(content)):
        for byte in (0, 0x7F, 0x80, 0xFF, content[position] ^ 1):
            git.write_index(content[:position] + bytes([byte]) + content[position + 1 :] + NO_CHECKSUM)
            tracked = read_tracked(repository)
            assert tracked.problem is None or tracked.names == []


def test_one_bit_changed_in_an_index_is_a_problem(git: Git) -> None:
    git.commit({"name": "1"})
    content = (git.top / ".git" / "index").read_bytes()
    git.write_index(content.replace(b"name", b"nbme"))

    assert read_tracked(at(git.top)).problem == "the git index cannot be read: its checksum is wrong"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(
    version=st.integers(1, 5),
    count=st.integers(0, 5) | st.just(2**32 - 1),
    rest=st.binary(max_size=300) | st.lists(st.binary(max_size=12)).map(lambda some: ENTRY_HEAD.join(some)),
)
def test_no_index_raises_anything(git: Git, version: int, count: int, rest: bytes) -> None:
    header = b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big")
    git.write_index(header + rest + NO_CHECKSUM)

    tracked = read_tracked(at(git.top))

    assert tracked.problem is None or tracked.names == []


@pytest.mark.parametrize(
    "name", [b"", b"/etc/passwd", b"a/../../b", b"..", b"a//b", b"./a", b".git/config", b"a/.git", b"a\0b"]
)
def test_a_name_that_could_lead_out_of_the_repository_is_a_problem(git: Git, name: bytes) -> None:
    flags_and_name = len(name).to_bytes(2, "big") + name
    entry = ENTRY_HEAD + flags_and_name
    entry += b"\0" * (8 - len(entry) % 8)
    git.write_index(b"DIRC\0\0\0\2\0\0\0\1" + entry + NO_CHECKSUM)

    tracked = read_tracked(at(git.top))

    assert tracked.problem == "the git index cannot be read: its names are invalid"


def test_names_that_unfold_to_far_more_than_the_index_holds_are_a_problem(git: Git) -> None:
    """Each entry keeps a name of a megabyte and adds a byte, so one megabyte becomes a gigabyte."""
    entry = ENTRY_HEAD + b"\0\1\0"
    content = b"DIRC\0\0\0\4" + (1001).to_bytes(4, "big")
    content += entry + b"x" * 1_000_000 + b"\0" + (entry + b"x\0") * 1000
    git.write_index(content + NO_CHECKSUM)

    assert read_tracked(at(git.top)).problem == "the git index cannot be read: its names are invalid"


def test_a_bitmap_that_claims_more_entries_than_there_are_is_a_problem(git: Git) -> None:
    git.commit({"a": "1"})
    git("update-index", "--split-index")
    content = (git.top / ".git" / "index").read_bytes()
    shared_id = content[content.index(b"link") + 8 :][:20]
    all_ones = (8).to_bytes(4, "big") + (1).to_bytes(4, "big") + (2**33 - 1).to_bytes(8, "big") + b"\0" * 4
    two = (2).to_bytes(4, "big") + (2).to_bytes(4, "big") + (1 << 33).to_bytes(8, "big")
    two += (2).to_bytes(8, "big") + b"\0" * 4
    problems = []
    for bitmaps in (all_ones + all_ones, two + two, all_ones, all_ones[:7]):
        link = shared_id + bitmaps
        git.write_index(b"DIRC\0\0\0\2\0\0\0\0link" + len(link).to_bytes(4, "big") + link + NO_CHECKSUM)
        problems.append(read_tracked(at(git.top)).problem)

    assert problems == [
        "the git index cannot be read: its bitmaps are invalid",
        "the git index cannot be read: its bitmaps are invalid",
        "the git index cannot be read: its bitmaps are truncated",
        "the git index cannot be read: its bitmaps are truncated",
    ]


def test_an_index_that_is_no_file_is_a_problem(git: Git) -> None:
    os.mkfifo(git.top / ".git" / "index")

    assert read_tracked(at(git.top)).problem == "the git index cannot be read: it is not a regular file"


def test_an_index_that_needs_an_unknown_extension_is_a_problem(git: Git) -> None:
    git.write_index(b"DIRC\0\0\0\2\0\0\0\0" + b"what\0\0\0\0" + NO_CHECKSUM)

    assert read_tracked(at(git.top)).problem == "the git index cannot be read: it needs the extension b'what'"


def test_the_stamp_changes_with_the_index_and_only_then(git: Git) -> None:
    git.commit({"a": "1"})
    before = index_stamp(at(git.top))
    git.write({"b": "2"})
    still = index_stamp(at(git.top))
    git("add", "b")

    assert before == still != index_stamp(at(git.top))


def test_a_large_index_is_read(git: Git) -> None:
    git.add_names([b"src/package_%03d/file_%06d.py" % (n % 300, n) for n in range(100_000)])
    repository = at(git.top)

    with comes_back():
        tracked = read_tracked(repository)

    assert len(tracked.names) == 100_000


# Names


def test_has_and_below_tell_names_from_prefixes_of_names() -> None:
    tracked = Tracked.of([b"a.b", b"a/b", b"a/c/d", b"a0", b"b"])

    paths = (b"", b"a", b"a.", b"a.b", b"a/b", b"a/c", b"a/c/d", b"b", b"z")
    assert [path for path in paths if tracked.has(path)] == [b"a.b", b"a/b", b"a/c/d", b"b"]
    assert [path for path in paths if tracked.has_below(path)] == [b"", b"a", b"a/c"]
    assert tracked.below(b"a") == [b"a/b", b"a/c/d"]
    assert tracked.below(b"a/c") == [b"a/c/d"]
    assert tracked.below(b"b") == []
    assert tracked.below(b"") == tracked.names


names = st.lists(
    st.lists(st.sampled_from([b"a", b"b", b"a.", b"a0", b"\xff"]), min_size=1, max_size=3).map(b"/".join)
)


@given(some=names, others=names, path=st.sampled_from([b"a", b"a/b", b"a.", b"a0", b"\xff", b"b/a/a"]))
def test_names_answer_as_a_plain_set_would(some: list[bytes], others: list[bytes], path: bytes) -> None:
    tracked = Tracked.of(some)

    assert tracked.has(path) == (path in some)
    assert tracked.below(path) == sorted({name for name in some if name.startswith(path + b"/")})
    assert tracked.has_below(path) == bool(tracked.below(path))
    assert (tracked.digest == Tracked.of(others).digest) == (set(some) == set(others))


# HEAD.


def test_an_unborn_head_has_no_commit(git: Git) -> None:
    assert read_head(at(git.top)) is None


def test_head_is_read_from_a_loose_ref_from_packed_refs_and_detached(git: Git) -> None:
    first = git.commit({"a": "1"})
    git("branch", "main-2")
    loose = read_head(at(git.top))
    git("pack-refs", "--all", "--prune")
    packed = read_head(at(git.top))
    second = git.commit({"a": "2"})
    over_packed = read_head(at(git.top))
    git("checkout", "-q", "--detach", "HEAD^")
    detached = read_head(at(git.top))

    assert (loose, packed, over_packed, detached) == (first, first, second, first)


def test_the_head_of_a_linked_worktree_is_its_own(git: Git) -> None:
    first = git.commit({"a": "1"})
    git("worktree", "add", "-q", "-b", "side", str(git.top.parent / "linked"))
    second = git.commit({"a": "2"})

    assert read_head(at(git.top)) == second
    assert read_head(at(git.top.parent / "linked")) == first


def test_head_may_be_a_link_as_it_was_of_old(git: Git) -> None:
    commit = git.commit({"a": "1"})
    (git.top / ".git" / "HEAD").unlink()
    (git.top / ".git" / "HEAD").symlink_to("refs/heads/main")

    assert read_head(at(git.top)) == commit


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/../../x", "refs/heads/none"])
def test_a_head_that_leads_in_a_circle_or_out_has_no_commit(git: Git, ref: str) -> None:
    (git.top / "x").write_text("0" * 40)
    (git.top / ".git" / "HEAD").write_text(f"ref: {ref}\n")
    (git.top / ".git" / "refs" / "heads" / "main").write_text("ref: refs/heads/main\n")

    assert read_head(at(git.top)) is None


# Excludes

PLACES: dict[str, Callable[[Git], Path]] = {
    "system": lambda git: git.top.parent / "gitconfig",
    "xdg": lambda git: git.home / ".config" / "git" / "config",
    "home": lambda git: git.home / ".gitconfig",
    "repository": lambda git: git.top / ".git" / "config",
    "worktree": lambda git: git.top / ".git" / "config.worktree",
}


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text)


def read_excludes(git: Git, *, config_home: Path | None = None) -> bytes:
    return read_global_excludes(
        at(git.top),
        home=os.fsencode(git.home),
        config_home=None if config_home is None else os.fsencode(config_home),
    )


def ignored_by_git(git: Git, among: list[str]) -> list[str]:
    command = ["git", "check-ignore", "--no-index", *among]
    done = subprocess.run(command, cwd=git.top, env=git.env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("top_place", range(-1, len(PLACES)))
def test_the_config_nearest_to_the_repository_names_the_excludes(
    git: Git, top_place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each place names a different excludes file, up to the one that must be used."""
    append(git.home / ".config" / "git" / "ignore", "default\n")
    git("config", "extensions.worktreeConfig", "true")
    for name in list(PLACES)[: top_place + 1]:
        append(git.top.parent / f"excludes-{name}", f"{name}\n")
        append(PLACES[name](git), f"[core]\n\texcludesFile = {git.top.parent}/excludes-{name}\n")
    monkeypatch.setattr(repositories, "SYSTEM_CONFIG", os.fsencode(PLACES["system"](git)))
    del git.env["GIT_CONFIG_NOSYSTEM"]
    git.env["GIT_CONFIG_SYSTEM"] = str(PLACES["system"](git))

    winner = ["default", *PLACES][top_place + 1]
    assert read_excludes(git) == f"{winner}\n".encode()
    assert ignored_by_git(git, ["default", *PLACES]) == [winner]


def test_a_config_of_the_worktree_that_is_not_switched_on_is_passed_over(git: Git) -> None:
    append(git.top / "excludes", "x\n")
    append(PLACES["worktree"](git), "[core]\nexcludesFile = excludes\n")

    assert read_excludes(git) == b""
    assert ignored_by_git(git, ["x"]) == []


def test_another_config_home_holds_the_config_and_the_default_excludes(git: Git) -> None:
    elsewhere = git.top.parent / "elsewhere"
    append(git.home / ".config" / "git" / "ignore", "wrong\n")
    append(elsewhere / "git" / "ignore", "right\n")
    git.env["XDG_CONFIG_HOME"] = str(elsewhere)

    assert read_excludes(git, config_home=elsewhere) == b"right\n"
    assert ignored_by_git(git, ["wrong", "right"]) == ["right"]


@pytest.mark.parametrize(
    ("value", "file"),
    [
        ("~/excludes", "home/excludes"),
        ("excludes", "repo/excludes"),
        ("../excludes", "excludes"),
        ("", None),
        ("/dev/null", None),
        ("~nobody-of-this-name/excludes", None),
    ],
)
def test_the_path_of_the_excludes_is_taken_as_git_takes_it(git: Git, value: str, file: str | None) -> None:
    """Even a path that does not exist replaces the default."""
    append(git.home / ".config" / "git" / "ignore", "default\n")
    if file:
        append(git.top.parent / file, "x\n")
    git("config", "core.excludesFile", value)

    assert read_excludes(git) == (b"x\n" if file else b"")
    if not value.startswith("~nobody"):  # git refuses to run at all
        assert ignored_by_git(git, ["x", "default"]) == (["x"] if file else [])


def test_the_home_of_a_named_user_is_found() -> None:
    user = pwd.getpwuid(os.getuid())

    assert repositories._expand_user(b"~%b/x" % user.pw_name.encode(), None) == user.pw_dir.encode() + b"/x"


def test_without_a_home_there_are_no_excludes(git: Git) -> None:
    git("config", "core.excludesFile", "~/excludes")

    assert read_global_excludes(at(git.top), home=None, config_home=None) == b""
    assert read_global_excludes(None, home=None, config_home=None) == b""


def test_outside_of_a_repository_the_users_own_config_counts(git: Git) -> None:
    append(git.home / ".gitconfig", "[core]\nexcludesFile = ~/mine\n")
    append(git.home / "mine", "x\n")
    home = os.fsencode(git.home)

    assert read_global_excludes(None, home=home, config_home=None) == b"x\n"
    append(git.home / ".gitconfig", "excludesFile = mine\n")
    assert read_global_excludes(None, home=home, config_home=None) == b""


def test_excludes_too_large_to_be_meant_count_as_none(git: Git) -> None:
    (git.top / ".git" / "info" / "exclude").write_bytes(b"x\n" * 600_000)

    assert read_exclude(at(git.top)) == b""


@pytest.mark.parametrize(
    "text",
    [
        "[core]\nexcludesFile=plain",
        "[CORE] EXCLUDESFILE = same line",
        "\ufeff[core]\r\n\texcludesFile = crlf\r\n",
        "[core]\nexcludesFile = two words  # and a comment\n",
        "[core]\nexcludesFile = a;comment\n",
        '[core]\nexcludesFile = "a # b ; c  " \n',
        '[core]\nexcludesFile = half" quoted  "name \n',
        '[core]\nexcludesFile = "q\\"u\\\\o\\tte"\n',
        "[core]\nexcludesFile = con\\\n  tinued \\\n\n",
        "[core]\nexcludesFile = \\\n   continued\n",
        "# comment\n[core] ; another\n\n  # one more\n excludesFile = x\n excludesFile = later\n",
        '[core "sub"]\nexcludesFile = wrong\n[core]\nexcludesFile = right\n[core.sub]\nexcludesFile = wrong',
        '[remote "a]\\"b"]\nurl = x\n[core]\nbare\nexcludesFile = after-odd-section\n',
    ],
)
def test_config_is_read_as_git_reads_it(git: Git, text: str) -> None:
    (git.home / ".gitconfig").write_bytes(text.encode())
    value = git("config", "--file", str(git.home / ".gitconfig"), "-z", "core.excludesFile")[:-1]
    (git.top / os.fsdecode(value)).write_text("x\n")

    assert read_excludes(git) == b"x\n"


@pytest.mark.parametrize(
    "bad",
    ["[core", "[co re]\n", '[core "x]\n', '[core]\nkey = "x\n', "[core]\nkey = \\x\n", "[core]\n=\n", "1x"],
)
def test_what_stands_before_a_line_that_makes_no_sense_counts(git: Git, bad: str) -> None:
    append(git.home / "x", "x\n")
    append(git.home / ".gitconfig", f"[core]\nexcludesFile = ~/x\n{bad}\n[core]\nexcludesFile = ~/y\n")

    assert read_excludes(git) == b"x\n"


def test_included_files_count_where_they_are_included(git: Git) -> None:
    append(git.home / "sub" / "one", "[include]\npath = two\n")
    append(git.home / "sub" / "two", "[core]\nexcludesFile = ~/included\n")
    append(git.home / ".gitconfig", "[core]\nexcludesFile = ~/before\n[include]\npath = sub/one\n")
    append(git.home / "included", "included\n")
    append(git.home / "after", "after\n")

    assert read_excludes(git) == b"included\n"
    assert ignored_by_git(git, ["included", "after"]) == ["included"]
    append(git.home / ".gitconfig", "[core]\nexcludesFile = ~/after\n")
    assert read_excludes(git) == b"after\n"


def test_files_that_include_themselves_many_times_come_to_an_end(git: Git) -> None:
    append(git.home / "x", "x\n")
    append(
        git.home / ".gitconfig", "[include]\n" + "path = ~/.gitconfig\n" * 20 + "[core]\nexcludesFile = ~/x\n"
    )

    assert read_excludes(git) == b"x\n"


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([*'[]"\\=#;\n\r \t', "core", "x"])).map(lambda t: "".join(t).encode())
)
def test_no_config_raises_anything(content: bytes) -> None:
    for name, value in parse_config(content):
        assert name
        assert value is None or isinstance(value, bytes)
