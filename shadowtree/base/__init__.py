"""What every other package uses: errors, frozen values, paths, limits, checks of arguments.

Imports only the standard library, and reads no files.
"""
