"""Acts: from a request through target and plan to the files, all or nothing.

The only package that changes a user's files, and only through `writer`.
"""
