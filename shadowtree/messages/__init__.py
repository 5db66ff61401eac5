"""Recording messages and steps, and who changed a path.

Decides nothing about files.
"""
