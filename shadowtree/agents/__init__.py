"""The agents that people use: what their hooks send, what it means, and how to answer each of them."""

from __future__ import annotations
