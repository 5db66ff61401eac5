"""The settings, and where they come from: files, environment, arguments.

Does not read the environment itself: callers pass it in.
"""
