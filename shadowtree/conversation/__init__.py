"""Encode sessions as git commits, and read sessions of other machines back from them.

Commits are made from the current timeline. Only `write_refs` writes refs; the worktree is never touched.
"""
