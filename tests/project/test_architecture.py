"""The packages of shadowtree in their order, and the tests that keep imports going one way."""

from __future__ import annotations

from tests.project.sources import own_imports, package_of, read_sources

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
"""From the bottom up. A package imports only from rows above its own in this list, never from its own row."""

LEVELS = {package: level for level, row in enumerate(ROWS) for package in row}


def test_packages_import_only_from_the_rows_before_their_own() -> None:
    found = {
        (package_of(module), package_of(name))
        for module in read_sources()
        for name in own_imports(module)
        if package_of(module) != package_of(name) and LEVELS[package_of(name)] >= LEVELS[package_of(module)]
    }

    assert not found


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    waiting = {module: own_imports(module) - {""} for module in read_sources() if module}
    while free := {module for module, wanted in waiting.items() if not wanted & waiting.keys()}:
        waiting = {module: wanted for module, wanted in waiting.items() if module not in free}

    assert not waiting
