"""`shadowtree rewind`: choose a message on a full screen, see what would happen, and go back.

`keys` decides what each key does, `model` keeps the state, and `draw` makes the screen; all three are pure.
`terminal` is the only module that uses curses. `actions` plans and carries out acts, and `live` reads news.
"""
