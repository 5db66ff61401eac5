"""What every module keeps to: which libraries it knows, what it may read and write, how large it gets."""

from __future__ import annotations

import ast
import sys
from collections import Counter

import pytest

import shadowtree
from tests.project.sources import (
    PACKAGE,
    list_imports,
    names_used,
    own_imports,
    package_of,
    read_sources,
)

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
"""Which packages may import them; nothing else from outside the standard library is imported."""

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
ADAPTERS_MAY_IMPORT = {"adapters", "aio", "base", "results", "shadow"}
MAY_READ_ENVIRONMENT = {"shadow"}
"""In addition to the front ends: the public methods, which pass values on."""
MAY_IMPORT_BY_NAME = {"", "daemon.wire", "cli.app"}
"""Modules that import others by a string, which these tests cannot follow."""
AT_THE_ROOT = {"__init__", "__main__", "aio", "all_stores", "shadow"}
MOST_MODULES_IN_A_FOLDER = 14
MOST_LINES_OF_A_MODULE = 500
MOST_PUBLIC_NAMES = 45


def _is_front_end(module: str) -> bool:
    return package_of(module) in FRONT_ENDS


def test_a_front_end_uses_only_what_it_may() -> None:
    inside = {
        (module, name)
        for module in filter(_is_front_end, read_sources())
        for name in own_imports(module)
        if not _is_front_end(name) and package_of(name) not in FRONT_ENDS_MAY_IMPORT
    }

    assert not inside


def test_adapters_use_only_the_public_methods() -> None:
    inside = {
        (module, name)
        for module in read_sources()
        for name in own_imports(module)
        if package_of(module) == "adapters" and package_of(name) not in ADAPTERS_MAY_IMPORT
    }

    assert not inside


@pytest.mark.parametrize("library", sorted(OUTSIDE_LIBRARIES))
def test_an_outside_library_is_known_to_its_own_packages_alone(library: str) -> None:
    knowing = {
        package_of(module)
        for module in read_sources()
        if library in {package_of(name) for name in list_imports(module)}
    }

    assert knowing == OUTSIDE_LIBRARIES[library]


def test_no_other_library_is_imported() -> None:
    allowed = sys.stdlib_module_names | OUTSIDE_LIBRARIES.keys() | {"shadowtree"}
    foreign = {
        (module, name)
        for module in read_sources()
        for name in list_imports(module)
        if package_of(name) not in allowed
    }

    assert not foreign


def test_nothing_prints() -> None:
    """Front ends write through `cli.output`, which handles streams, colours and encodings."""
    printing = {module for module in read_sources() if "print" in names_used(module)}

    assert not printing


def test_the_environment_is_read_by_public_methods_and_front_ends_alone() -> None:
    words = {"os.environ", "os.environb", "os.getenv", "os.path.expanduser", "pathlib.Path.home"}
    reading = {module for module in read_sources() if not words.isdisjoint(names_used(module))}

    assert {package_of(module) for module in reading if not _is_front_end(module)} == MAY_READ_ENVIRONMENT


def test_few_modules_import_by_name() -> None:
    by_name = {"import_module", "__import__", "importlib.import_module"}
    importing = {module for module in read_sources() if not by_name.isdisjoint(names_used(module))}

    assert importing == MAY_IMPORT_BY_NAME


def test_folders_and_modules_stay_small() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent for path in modules)

    assert {path.stem for path in PACKAGE.glob("*.py")} == AT_THE_ROOT
    assert max(folders.values()) <= MOST_MODULES_IN_A_FOLDER
    assert max(len(path.read_text("utf-8").splitlines()) for path in modules) <= MOST_LINES_OF_A_MODULE


def test_every_module_says_what_it_is_for() -> None:
    mute = [module for module, source in read_sources().items() if not ast.get_docstring(source)]

    assert not mute


def test_there_are_few_public_names() -> None:
    assert len(shadowtree.__all__) <= MOST_PUBLIC_NAMES


@pytest.mark.parametrize("name", shadowtree.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    offered = getattr(shadowtree, name)

    assert offered.__doc__
    # `frozen` makes new classes; a made-up signature would stand here if it lost the docstring.
    assert not offered.__doc__.startswith(f"{name}(")


def test_the_public_names_are_sorted_and_all_that_type_checkers_see() -> None:
    seen = {
        alias.name
        for node in read_sources()[""].body
        if isinstance(node, ast.If)
        for line in node.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }

    assert shadowtree.__all__ == sorted(seen)
