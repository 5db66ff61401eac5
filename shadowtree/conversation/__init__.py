"""A session's messages as git commits, and the timeline rebuilt from them.

Always made from the timeline as it is now. Writes no refs and never touches the worktree.
"""
