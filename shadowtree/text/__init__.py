"""Texts as bytes in, values out: line diffs and three-way merges.

Never looks at the disk.
"""
