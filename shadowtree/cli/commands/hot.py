"""The commands that hosts of agents call all the time: what click has to know of them.

What they do stands in `record` and `run`, which know no click; `fast` leads there without it.
"""

from __future__ import annotations

import click
from click import Argument, Option

from shadowtree.cli import record
from shadowtree.cli import run as running
from shadowtree.cli.app import PATH, command, complete_message

_DESCRIPTION = (
    Option(["-m", "text"], metavar="TEXT", help="What was asked for, or said"),
    Option(["--role"], metavar="ROLE", help="Who speaks; a turn starts at the role 'user' or at none"),
    Option(["--meta"], metavar="JSON", help="A JSON object of your own, kept with the message"),
)
"""By which a message is described."""
_PATHS = Option(
    ["--path", "paths"],
    metavar="PATH",
    type=PATH,
    multiple=True,
    help="Only PATH was changed by the message; may be repeated",
)
_END = Option(["--end", "is_end"], is_flag=True, help="The step is over")

begin = command(params=[Argument(["id"]), *_DESCRIPTION])(record.begin)
end = command(params=[Argument(["id"], required=False, shell_complete=complete_message), _PATHS])(record.end)
snapshot = command(params=[Argument(["id"]), *_DESCRIPTION])(record.snapshot)
step = command(params=[Argument(["name"]), _END])(record.step)
track = command()(record.track)
run = command(
    params=[
        Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED),
        *_DESCRIPTION,
        Option(["--id"], metavar="ID", help="The id of the message; a new one is made up by default"),
        Option(["--undo-on-fail"], is_flag=True, help="Undo what the command changed if it fails"),
    ],
    # What comes after the first word of the command is not ours, options least of all.
    context_settings={"allow_interspersed_args": False},
)(running.run)
