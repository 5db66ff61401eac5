"""The settings and where they come from: files, environment, arguments.

Reads no environment by itself: callers hand it in.
"""
