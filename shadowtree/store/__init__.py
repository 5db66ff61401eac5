"""The hidden GIT_DIR of one worktree: where it is, whose it is, its lock, its git objects.

Knows nothing of messages. What is in a worktree is `capture`'s.
"""
