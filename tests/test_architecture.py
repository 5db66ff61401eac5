"""The layers of shadowtree as a table, and the tests that keep imports going one way.

Imports are read from the sources, not watched at run time. All of them count: those inside functions too,
which only come later, and those under `TYPE_CHECKING`, because who has to name a type knows its module.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import shadowtree

PACKAGE = Path(shadowtree.__file__).parent

FLOORS: tuple[tuple[str, set[str]], ...] = (
    ("words", {"errors", "faultpoint", "frozen", "layout", "paths"}),
    ("words: values", {"directory", "events", "model", "settings", "state", "tombstones"}),
    ("words: what a store takes, and what was done", {"figures", "outcome", "reports"}),
    ("formats: lines, seals of rows, and slugs", {"linediff", "seals", "slugs"}),
    (
        "formats",
        {
            "deflate",
            "deltas",
            "diff",
            "facts",
            "gitconfig",
            "gitformat",
            "gitindex",
            "ignore",
            "redaction",
            "settingsfile",
            "tables",
            "textmerge",
            "treelisting",
        },
    ),
    ("edges: the system", {"system"}),
    (
        "edges: files, and what the system tells",
        {"disk", "inotify", "mounts", "repositories", "schemas", "worktree"},
    ),
    (
        "edges: parts of a store, writing files, and watching",
        {
            "anchor",
            "audit",
            "identity",
            "inventory",
            "lock",
            "loose",
            "packs",
            "packwriter",
            "rows",
            "salvage",
            "sink",
            "staging",
            "statcache",
            "watcher",
        },
    ),
    ("edges: packs together, and what is in one", {"stock", "unpacking"}),
    (
        "edges: stores, rows of each kind, and what watchfiles tells",
        {"forgotten", "notices", "objects", "passing", "purgedrows", "store", "treerows"},
    ),
    (
        "edges: the timeline, copies of objects, and one shelf",
        {"chain", "copies", "fresh", "journal", "shelf"},
    ),
    ("edges: packs put together", {"shelving"}),
    ("edges: what comes into a store", {"intake"}),
    ("rules: what is covered, and what is known", {"census", "coverage", "reach"}),
    ("rules: where they stand", {"rulefiles"}),
    ("rules: one directory", {"listing"}),
    ("rules: what is there", {"scan"}),
    ("rules: what is there, for later", {"ahead"}),
    (
        "rules: trees, and what is in sight",
        {"erasing", "marking", "orphans", "recorded", "rewritten", "seed", "snapshot", "usage", "watch"},
    ),
    ("rules: changes, and what is there now", {"bursts", "patch", "plan", "sight", "tally", "timeline"}),
    (
        "rules: from the timeline to the files",
        {"apply", "check", "merging", "remaking", "retention", "trace"},
    ),
    ("rules: making good", {"repair"}),
    (
        "front door: its parts",
        {"arguments", "handles", "intents", "interrupts", "opened", "places", "sessions"},
    ),
    ("front door: where commands and the daemon meet", {"allstores", "config", "meeting"}),
    (
        "front door: taking the present state",
        {"blame", "branches", "capture", "doomed", "forgetting", "others", "retelling", "sweeping"},
    ),
    ("front door: recording", {"blobs", "budget", "purging", "scribe"}),
    ("front door: all stores", {"totalbudget"}),
    ("front door: messages, and reading the way", {"recorder", "refs", "ways"}),
    ("front door: choosing", {"aims"}),
    ("front door: acting", {"reverting"}),
    ("front door: the way in", {"gate"}),
    ("front door: reading ahead", {"attendant"}),
    ("front door: its frame", {"door"}),
    ("front door: what is done with it", {"acts", "upkeep"}),
    ("front door: what its store takes", {"seeing"}),
    ("front door", {"shadow"}),
    ("front door, for asyncio and by itself", {"aio", "auto"}),
    ("what is offered", {""}),
    ("daemon: words", {"daemon.frames", "daemon.log", "daemon.protocol", "daemon.values"}),
    ("daemon: the command's end", {"daemon.client"}),
    ("daemon: shadows", {"daemon.remote", "daemon.served"}),
    ("daemon: what is done", {"daemon.work"}),
    ("daemon: conversations", {"daemon.conversation"}),
    ("daemon: the loop", {"daemon.server"}),
    ("daemon: starting it", {"daemon.start"}),
    ("daemon", {"daemon"}),
    ("command line: words", {"cli.columns", "cli.command", "cli.graph", "cli.text"}),
    ("command line: output", {"cli.output", "cli.quick"}),
    (
        "command line: shapes",
        {"cli.app", "cli.progress", "cli.relay", "cli.render", "cli.shadows", "cli.undoing"},
    ),
    ("command line: stories", {"cli.history", "cli.log", "cli.outcome", "cli.said"}),
    ("command line: answers", {"cli.errors"}),
    (
        "command line: commands",
        {
            "cli.branching",
            "cli.checking",
            "cli.config",
            "cli.forgetting",
            "cli.messages",
            "cli.purging",
            "cli.reading",
            "cli.recording",
            "cli.reverting",
            "cli.running",
            "cli.seeing",
            "cli.stores",
            "cli.watching",
        },
    ),
    ("command line: entry", {"cli.entry"}),
    ("command line", {"cli"}),
    ("python -m", {"__main__"}),
)
"""From the ground up. A module may import from the floors below its own, and from no neighbour."""

OUTSIDE_LIBRARIES = {
    "click": {"cli.app"},
    "dulwich": {"deltas"},
    "isal": {"deflate"},
    "sqlite3": {"audit", "rows", "salvage", "schemas", "statcache"},
    "watchfiles": {"notices"},
}
"""Who may know them; nothing else from outside the standard library is known to anybody."""

MAY_READ_ENVIRONMENT = {"door", "shadow", "system"}
"""Beside the front ends: the door, which passes values on, and the module that knows the platforms."""

MAY_IMPORT_BY_NAME = {"", "cli.command"}
"""Modules that import others by a text, which this test cannot follow."""

FRONT_ENDS = ("cli", "daemon", "__main__")
FRONT_ENDS_MAY_IMPORT = {"", "frozen"}

LEVELS = {module: level for level, (_, modules) in enumerate(FLOORS) for module in modules}


def _is_front_end(module: str) -> bool:
    return module.partition(".")[0] in FRONT_ENDS


@cache
def _sources() -> dict[str, ast.Module]:
    """Parse every module; named without `shadowtree.`, so that the package itself has the empty name."""
    sources = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix("__init__").removesuffix(".")
        sources[name] = ast.parse(path.read_text("utf-8"), str(path))
    return sources


def _imports(source: ast.Module, known: set[str]) -> Iterator[str]:
    """Yield what a module imports by full names, wherever the line stands.

    `from shadowtree import disk` means the module `shadowtree.disk`; with a name that is no module, as in
    `from shadowtree import Shadow`, it means the package.
    """
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def _own_imports(module: str) -> set[str]:
    """Name the modules of shadowtree that a module imports."""
    known = {f"shadowtree.{name}" for name in _sources()}
    found = {
        name.removeprefix("shadowtree").removeprefix(".")
        for name in _imports(_sources()[module], known)
        if name.partition(".")[0] == "shadowtree"
    }
    return found - {module}


@cache
def _names_used(module: str) -> frozenset[str]:
    """Collect every name and dotted name that a module uses, such as `print` and `os.environ`."""
    used = set()
    for node in ast.walk(_sources()[module]):
        if isinstance(node, ast.Name | ast.Attribute):
            used.add(_dotted(node))
        elif isinstance(node, ast.ImportFrom):
            used.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(used)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def test_every_module_stands_in_the_table_once() -> None:
    listed = [module for _, modules in FLOORS for module in modules]

    assert sorted(listed) == sorted(_sources())


@pytest.mark.parametrize("module", sorted(LEVELS), ids=lambda module: module or "shadowtree")
def test_a_module_imports_only_from_the_floors_below(module: str) -> None:
    upward = {name for name in _own_imports(module) if LEVELS[name] >= LEVELS[module]}

    assert not upward, f"{module} stands on {FLOORS[LEVELS[module]][0]!r}"


@pytest.mark.parametrize("module", sorted(filter(_is_front_end, LEVELS)))
def test_a_front_end_uses_only_what_the_package_offers(module: str) -> None:
    inside = {name for name in _own_imports(module) if not _is_front_end(name)}

    assert inside <= FRONT_ENDS_MAY_IMPORT


@pytest.mark.parametrize("library", sorted(OUTSIDE_LIBRARIES))
def test_an_outside_library_is_known_to_its_own_modules_alone(library: str) -> None:
    knowing = {
        module
        for module, source in _sources().items()
        if library in {name.partition(".")[0] for name in _imports(source, set())}
    }

    assert knowing == OUTSIDE_LIBRARIES[library]


def test_no_other_library_is_imported() -> None:
    allowed = sys.stdlib_module_names | OUTSIDE_LIBRARIES.keys() | {"shadowtree"}
    foreign = {
        (module, name)
        for module, source in _sources().items()
        for name in _imports(source, set())
        if name.partition(".")[0] not in allowed
    }

    assert not foreign


def test_nothing_prints() -> None:
    """Front ends write through `cli.output`, which knows streams, colours and encodings."""
    printing = {module for module in _sources() if "print" in _names_used(module)}

    assert not printing


def test_the_environment_is_read_by_the_door_and_by_front_ends_alone() -> None:
    words = {"os.environ", "os.environb", "os.getenv", "os.path.expanduser", "pathlib.Path.home"}
    reading = {module for module in _sources() if not words.isdisjoint(_names_used(module))}

    assert {module for module in reading if not _is_front_end(module)} == MAY_READ_ENVIRONMENT


def test_only_two_modules_import_by_name() -> None:
    by_name = {"import_module", "__import__", "importlib.import_module"}
    importing = {module for module in _sources() if not by_name.isdisjoint(_names_used(module))}

    assert importing == MAY_IMPORT_BY_NAME


def test_every_module_says_what_it_is_for() -> None:
    mute = [module for module, source in _sources().items() if not ast.get_docstring(source)]

    assert not mute


@pytest.mark.parametrize("name", shadowtree.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    offered = getattr(shadowtree, name)

    assert offered.__doc__
    # `frozen` makes new classes; a made-up signature would stand here if it lost the docstring.
    assert not offered.__doc__.startswith(f"{name}(")


def test_the_public_names_are_sorted_and_all_that_type_checkers_see() -> None:
    seen = {
        alias.name
        for node in _sources()[""].body
        if isinstance(node, ast.If)
        for line in node.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }

    assert shadowtree.__all__ == sorted(seen)
