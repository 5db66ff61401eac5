"""The daemon, a front end: it keeps worktrees warm and does the work of commands for them.

A command that finds none, or one that is not just like itself, does its work alone, and nobody notices.
"""
