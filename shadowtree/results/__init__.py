"""What callers get: messages, plans, outcomes and reports, as frozen values.

Nothing here decides or does anything.
"""
