"""Which paths are covered: ignore rules, the user's indexes, heavy directories.

The user's repositories are only read.
"""
