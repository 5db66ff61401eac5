"""The command line, a front end.

`main` runs one command line. `fast` parses the commands that agents call all the time, without click; `app`
knows all commands. The commands are in `commands/`, and the text output of their results is in `views/`.
"""
