"""Git packs: read, write and merge them, with older versions of objects as deltas of newer ones.

When a pack counts as recorded is decided by the timeline, which also removes packs.
"""
