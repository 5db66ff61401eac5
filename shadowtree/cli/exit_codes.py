"""The exit codes of all commands besides 0; the README lists them for users."""

from __future__ import annotations

FAILED = 1
"""It failed, or less was done than requested."""
WRONG_USAGE = 2
NOT_WRAPPED = 10
"""There is no store, or it belongs to another directory."""
LOCKED = 11
UNKNOWN_NAME = 12
"""There is no such message, branch, step, tree or remote."""
NOTHING_CHANGED = 13
"""There are conflicts, or the plan was not confirmed or is outdated."""
STORE_DAMAGED = 15
INTERRUPTED = 130

# What `run` returns for a command besides its own exit code, as a shell does
CANNOT_EXECUTE = 126
COMMAND_NOT_FOUND = 127
SIGNALLED = 128
"""The number of the signal is added."""
