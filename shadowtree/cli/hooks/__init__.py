"""Hooks of agents: the command that agents call, and its log."""

from __future__ import annotations
