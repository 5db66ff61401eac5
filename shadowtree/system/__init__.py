"""The outside, one module a thing: system calls, files by descriptor, durable writes, mounts, inotify.

What is bound to a platform is here, with a fallback. Knows nothing of stores, trees or messages.
"""
