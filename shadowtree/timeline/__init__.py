"""The journal in SQLite: messages, steps, branches, acts, and where a session stands.

The row is the publish point. Never touches the worktree.
"""
