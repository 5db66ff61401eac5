"""Sessions as git commits, and sessions of other machines read back from them.

Always made from the timeline as it is now. Writes no refs and never touches the worktree.
"""
