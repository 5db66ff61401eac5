"""Encode sessions as git commits, and read sessions of other machines back from them.

Commits are always made from the current timeline. Only `export` writes refs; the worktree is never touched.
"""
