"""Retention: which messages are forgotten, budgets, and sweeping what nothing needs.

It never removes what a live message needs.
"""
