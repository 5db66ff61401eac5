"""From the worktree to a tree, and the state of a path in a recorded tree.

This package only reads the worktree. A tree equals the disk, or the snapshot raises.
"""
