"""docs/rewind.md draws the screen as it is: run `python -m tests.picker.test_page` to draw it anew."""

from __future__ import annotations

import re
from pathlib import Path

from shadowtree import Message, Patch
from shadowtree.base.frozen import replace
from shadowtree.picker import keys, model
from shadowtree.picker.draw import draw, to_text
from shadowtree.picker.pages import show_plan
from shadowtree.picker.requests import Act
from shadowtree.results.outcomes import ConflictingPath
from tests.support.values import NOW_MS, make_change, make_message, make_outcome

PAGE = Path(__file__).parents[2] / "docs" / "rewind.md"
COUNTS = {"msg_9": (14, 3), "msg_8": (120, 8), "msg_7": (4, 4), "msg_6": (61, 0)}

_REASON = "it was edited after message 'msg_8'"


def _message(number: int, minutes: int, text: str, *paths: str, **fields: object) -> Message:
    patch = Patch("", [make_change(path) for path in paths])
    time_ms, parent = NOW_MS - 60_000 * minutes, f"msg_{number - 1}"
    values = {"before": str(number) * 40, "after": str(number + 1) * 40, "time_ms": time_ms, "parent": parent}
    return make_message(
        number, **{**values, "text": text, "patch": patch, "meta": {"agent": "claude"}, **fields}
    )


def draw_screens() -> list[str]:
    """Draw the list and a preview."""
    messages = [
        _message(6, 25, "set up the database", "db/schema.sql", unprotected=["dev.db"]),
        _message(7, 21, "rename config keys", "config.toml", inferred=True),
        _message(8, 9, "add backoff to client", "src/backoff.py", "src/client.py", before="0" * 40),
        make_message(10, state="archived", parent="msg_8"),
        _message(9, 2, "tighten the retry loop", "src/retry.py", state="undone"),
    ]
    state = model.load(model.start("default", "/home/me/project"), messages, has_all=True)
    state = replace(model.resize(state, 10, 80), outside=1)
    state, _ = keys.press(state, "down")
    outcome = make_outcome(
        "revert",
        dry_run=True,
        messages=["msg_7", "msg_8"],
        restored=["config.toml"],
        deleted=["src/backoff.py"],
        conflicts=[ConflictingPath("src/client.py", _REASON, "", [], ["merge", "keep", "overwrite"])],
    )
    page = show_plan(Act("back", "msg_7"), outcome, {"msg_7": 7, "msg_8": 8}, {})
    screens = (state, model.open_page(model.resize(state, 11, 80), page))
    return ["\n".join(to_text(draw(each, COUNTS, NOW_MS))) + "\n" for each in screens]


def test_the_page_draws_the_screen_as_it_is() -> None:
    drawn = re.findall(r"```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)

    assert drawn == draw_screens(), "run python -m tests.picker.test_page"


if __name__ == "__main__":
    screens = iter(draw_screens())
    text = re.sub(
        r"(?<=```text\n).*?(?=```)", lambda _: next(screens), PAGE.read_text("utf-8"), flags=re.DOTALL
    )
    PAGE.write_text(text, "utf-8")
