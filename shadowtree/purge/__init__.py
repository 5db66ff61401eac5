"""Remove a path, a content or a text from everything in a store.

The only package that rewrites what was recorded.
"""
