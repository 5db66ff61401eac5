"""Record messages and steps, read them, and find who changed a path.

Changes no file of a worktree.
"""
