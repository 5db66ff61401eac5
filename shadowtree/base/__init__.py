"""The words that everybody uses: errors, frozen values, paths, what a path is.

Knows the standard library alone, and never looks at the disk.
"""
