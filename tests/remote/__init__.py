"""Push, fetch and join, through `Shadow` and the command."""
