"""The packages of shadowtree as a table, and the tests that keep imports going one way.

Imports are read from the sources, not watched at run time. All of them count: those inside functions too,
which only come later, and those under `TYPE_CHECKING`, because who has to name a type knows its module.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import shadowtree

PACKAGE = Path(shadowtree.__file__).parent

ROWS = (
    ("base",),
    ("results", "text"),
    ("system",),
    ("config",),
    ("store",),
    ("timeline",),
    ("capture",),
    ("messages", "revert", "retention", "purge", "check", "conversation"),
    ("watching",),
    ("access",),
    ("remote",),
    ("shadow",),
    ("aio", "all_stores"),
    ("",),
    ("adapters", "agents", "daemon", "picker", "web"),
    ("mcp",),
    ("cli",),
    ("__main__",),
)
"""From the ground up. A package imports from the rows before its own; neighbours do not know each other."""

OUTSIDE_LIBRARIES = {
    "agents": {"adapters"},
    "claude_agent_sdk": {"adapters"},
    "click": {"cli"},
    "curses": {"picker"},
    "dulwich": {"remote", "store"},
    "google": {"adapters"},
    "isal": {"store"},
    "langchain": {"adapters"},
    "mcp": {"mcp"},
    "pydantic_ai": {"adapters"},
    "smolagents": {"adapters"},
    "sqlite3": {"capture", "check", "timeline"},
    "urllib3": {"remote"},
    "watchfiles": {"watching"},
}
"""Which packages may know them; nothing else from outside the standard library is known to anybody."""

MAY_READ_ENVIRONMENT = {"shadow"}
"""Beside the front ends: the door, which passes values on."""

MAY_IMPORT_BY_NAME = {"", "daemon.wire", "cli.app"}
"""Modules that import others by a text, which this test cannot follow."""

FRONT_ENDS = ("agents", "cli", "daemon", "mcp", "picker", "web", "__main__")
FRONT_ENDS_MAY_IMPORT = {
    "",
    "access",
    "all_stores",
    "base",
    "config",
    "results",
    "shadow",
    "system",
    "watching",
}
MOST_MODULES_IN_A_FOLDER = 14
MOST_LINES_OF_A_MODULE = 500
AT_THE_ROOT = {"__init__", "__main__", "aio", "all_stores", "shadow"}

LEVELS = {package: level for level, row in enumerate(ROWS) for package in row}


def _package(module: str) -> str:
    return module.partition(".")[0]


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

    `from shadowtree.system import disk` means the module; with a name that is no module, as in
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


def test_packages_import_only_from_the_rows_before_their_own() -> None:
    found = {
        (_package(module), _package(name))
        for module in _sources()
        for name in _own_imports(module)
        if _package(module) != _package(name) and LEVELS[_package(name)] >= LEVELS[_package(module)]
    }

    assert not found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    waiting = {module: _own_imports(module) - {""} for module in _sources() if module}
    while free := {module for module, wanted in waiting.items() if not wanted & waiting.keys()}:
        waiting = {module: wanted for module, wanted in waiting.items() if module not in free}

    assert not waiting


def test_a_front_end_uses_only_what_it_may() -> None:
    inside = {
        (module, name)
        for module in filter(_is_front_end, _sources())
        for name in _own_imports(module)
        if not _is_front_end(name) and _package(name) not in FRONT_ENDS_MAY_IMPORT
    }

    assert not inside


def test_adapters_use_the_doors_alone() -> None:
    inside = {
        (module, name)
        for module in _sources()
        for name in _own_imports(module)
        if _package(module) == "adapters"
        and _package(name) not in {"adapters", "aio", "base", "results", "shadow"}
    }

    assert not inside


@pytest.mark.parametrize("library", sorted(OUTSIDE_LIBRARIES))
def test_an_outside_library_is_known_to_its_own_modules_alone(library: str) -> None:
    knowing = {
        _package(module)
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

    assert {_package(module) for module in reading if not _is_front_end(module)} == MAY_READ_ENVIRONMENT


def test_only_two_modules_import_by_name() -> None:
    by_name = {"import_module", "__import__", "importlib.import_module"}
    importing = {module for module in _sources() if not by_name.isdisjoint(_names_used(module))}

    assert importing == MAY_IMPORT_BY_NAME


def test_folders_and_modules_stay_small() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)

    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT
    assert max(folders.values()) <= MOST_MODULES_IN_A_FOLDER
    assert max(len(path.read_text("utf-8").splitlines()) for path in modules) <= MOST_LINES_OF_A_MODULE


def test_every_module_says_what_it_is_for() -> None:
    mute = [module for module, source in _sources().items() if not ast.get_docstring(source)]

    assert not mute


def test_there_are_few_public_names() -> None:
    assert len(shadowtree.__all__) <= 45


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
