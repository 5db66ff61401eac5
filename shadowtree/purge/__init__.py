"""Removing a path or a content from all of a store.

The one package that rewrites what was recorded.
"""
