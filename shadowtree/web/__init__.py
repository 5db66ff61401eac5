"""The local page and its HTTP interface: a table of routes, a server on loopback, and its guard."""

from __future__ import annotations
