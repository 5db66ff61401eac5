"""From the worktree to a tree, and what a recorded tree says of a path.

Only reads the worktree. A tree equals the disk, or the snapshot raises.
"""
