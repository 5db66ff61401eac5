"""What changed since the last look, as the system tells it.

In doubt everything is looked at.
"""
