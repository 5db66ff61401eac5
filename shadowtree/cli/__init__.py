"""The command line, a front end: it uses only what `import shadowtree` offers."""

from shadowtree.cli.entry import main

__all__ = ["main"]
