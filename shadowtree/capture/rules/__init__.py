"""Which paths are covered: ignore rules, the user's indexes, heavy directories.

Only ever reads the user's repositories.
"""
