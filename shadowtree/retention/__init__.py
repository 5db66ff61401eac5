"""What is kept: which messages are forgotten, budgets, and sweeping what nobody needs.

Never removes what a live message needs.
"""
