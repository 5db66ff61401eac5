"""`shadowtree rewind`: choose a message on a full screen, see what would happen, and go back.

`model` decides what each key does, `draw` what the screen shows; both are pure. `terminal` is the only module
that knows curses, `actions` the only one that calls a shadow.
"""
