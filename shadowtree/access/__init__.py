"""The way into a store: lock it, open it, recover what was interrupted; and what one does with it as a whole.

Nothing here decides what is recorded or undone.
"""
