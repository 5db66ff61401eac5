"""Access to a store: lock it, open it, recover interrupted operations, and maintain it as a whole.

Nothing here decides what is recorded or undone.
"""
