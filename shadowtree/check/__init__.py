"""Whether a store is sound, and repairing it.

A check changes nothing; a repair keeps what it replaces.
"""
