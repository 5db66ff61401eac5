"""Follow what changes in a worktree or a store, as the operating system reports it.

If there is any doubt, everything is scanned.
"""
