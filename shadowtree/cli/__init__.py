"""The command line, a front end.

`main` runs one line. `fast` understands the commands that agents call all the time, without click; `app`
knows all commands. They stand in `commands/`, and what people read of their results in `views/`.
"""
