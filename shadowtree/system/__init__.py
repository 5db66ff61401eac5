"""The operating system: system calls, files by descriptor, durable writes, mounts, inotify, locations.

Everything that depends on the platform is here, with a fallback. Nothing here knows about trees or messages.
"""
