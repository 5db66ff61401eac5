"""The local page and its HTTP interface: a table of routes, a server on loopback, and the guard before it."""

from __future__ import annotations
