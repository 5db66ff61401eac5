"""What a model is told after an undo.

Names of files and prompts are quoted as JSON, so that the model reads them as data.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PATHS = 20
"""How many paths the model is told of."""
_MOST_TURNS = 20
_MOST_CHARACTERS = 300
"""Of one path."""
_ADVICE = "These files no longer have your earlier edits; read them again before you rely on them."


def describe_undo(turns: Sequence[tuple[int, str]], paths: Sequence[str]) -> str:
    """Tell the model what was undone since its last turn, by the numbers of the log; empty: nothing was."""
    import json

    if not turns and not paths:
        return ""
    lines = ["Since your last turn, the user changed files back with shadowtree (an undo for coding agents)."]
    if turns:
        shown = [f"#{number} {json.dumps(text)}" if text else f"#{number}" for number, text in turns]
        lines.append(f"Undone turns: {', '.join(shown[:_MOST_TURNS])}{_count_more(shown, _MOST_TURNS)}.")
    if paths:
        shown = [json.dumps(path[:_MOST_CHARACTERS]) for path in paths]
        lines.append(f"Changed files: {', '.join(shown[:MOST_PATHS])}{_count_more(shown, MOST_PATHS)}.")
        lines.append(_ADVICE)
    return "\n".join(lines)


def _count_more(shown: Sequence[str], most: int) -> str:
    return f" and {len(shown) - most:,} more" if len(shown) > most else ""
