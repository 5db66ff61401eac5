"""Acts: from a target through a plan to the files, all or nothing.

The one package that writes into the worktree, and only through `writer`.
"""
