"""The journal in SQLite: messages, steps, branches, acts, and where a session stands.

The row is the publish point. This package never touches the worktree.
"""
