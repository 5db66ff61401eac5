"""The hidden git directory of one worktree: its location, its identity, its lock, its git objects.

Nothing here knows about messages. The files in a worktree are read by `capture`.
"""
