"""Adapters for agent SDKs: each module turns the callbacks of one SDK into turns and steps of a shadow.

No SDK is imported before you call an adapter's function, and none is a dependency of shadowtree.
"""

from __future__ import annotations
