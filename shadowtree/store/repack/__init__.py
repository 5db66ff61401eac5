"""Putting small packs together, with deltas.

An old pack goes only after the new one is durable and was read.
"""
