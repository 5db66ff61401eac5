"""Git objects: packs and loose ones, read with their hashes checked, written durably.

Knows formats, not meanings: which objects are needed is decided elsewhere.
"""
