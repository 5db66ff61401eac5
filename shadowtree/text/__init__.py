"""Texts as bytes in, values out: line diffs, three-way merges, git's configuration files.

Never looks at the disk.
"""
