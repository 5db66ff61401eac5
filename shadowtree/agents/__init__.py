"""The agents that people use: what their hooks send, what it means, and how each of them can be answered."""

from __future__ import annotations
