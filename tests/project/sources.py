"""The sources of shadowtree as the tests of this folder read them: parsed, with what each module imports.

All imports count: those inside functions, and those under `TYPE_CHECKING`, because a module that names a type
depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import shadowtree

PACKAGE = Path(shadowtree.__file__).parent


@cache
def read_sources() -> dict[str, ast.Module]:
    """Parse every module; keys are names without `shadowtree.`, so the package itself is the empty name."""
    sources = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        name = name.removesuffix("__init__").removesuffix(".")
        sources[name] = ast.parse(path.read_text("utf-8"), str(path))
    return sources


def package_of(module: str) -> str:
    return module.partition(".")[0]


def list_imports(module: str) -> Iterator[str]:
    """Yield the full names of what a module imports.

    `from shadowtree.system import disk` names the module; with a name that is no module, as in
    `from shadowtree import Shadow`, it names the package.
    """
    known = {f"shadowtree.{name}" for name in read_sources()}
    for node in ast.walk(read_sources()[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def own_imports(module: str) -> set[str]:
    """Return the modules of shadowtree that a module imports."""
    found = {
        name.removeprefix("shadowtree").removeprefix(".")
        for name in list_imports(module)
        if package_of(name) == "shadowtree"
    }
    return found - {module}


@cache
def names_used(module: str) -> frozenset[str]:
    """Return every name and dotted name that a module uses, such as `print` and `os.environ`."""
    used = set()
    for node in ast.walk(read_sources()[module]):
        if isinstance(node, ast.Name | ast.Attribute):
            used.add(_dotted(node))
        elif isinstance(node, ast.ImportFrom):
            used.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(used)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"
