"""The daemon, a front end: it keeps worktrees warm and does the work of commands.

A command that finds no daemon, or one that cannot work for it, works alone, with the same result.
"""
