"""The database of the timeline: its tables, their seals, and the statements that read and change rows.

What the rows mean is decided above, in `timeline/`.
"""
