"""Check whether a store is sound, and repair it.

A check changes nothing; a repair keeps what it replaces.
"""
