"""The plugin for OpenCode and Kilo: what it reports for what really happened, and that it never throws."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.cli.main import main
from tests.support.processes import PACKAGE_PLACE

PAYLOADS = Path(__file__).parent / "payloads" / "opencode-two-turns-and-reverts.json"
SESSION = "ses_e151d73acffezY8UYaav2vFPqj"
NAME = "opencode-av2vFPqj"
FIRST, SECOND, THIRD, LAST = (
    "msg_1eae28ce8001PGel5rSrmPXvR7",
    "msg_1eae2b793001kEdOs3UrKLZhq5",
    "msg_1eae2c3a6001Q3gzBfSs9cBbDo",
    "msg_1eae2d65b0018A8cnFB1xhxzmj",
)

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="there is no node to run the plugin with"
)

PLAY = """
import { readFileSync } from "node:fs"
const [plugin, directory, script] = process.argv.slice(2)
const { Shadowtree } = await import(plugin)
const toasts = []
const client = { tui: { showToast: async (toast) => toasts.push(toast) } }
const hooks = await Shadowtree({ directory, client })
const twice = await Shadowtree({ directory, client })
const outputs = []
for (const { hook, payload, waits } of JSON.parse(readFileSync(script))) {
  if (hook.startsWith("event ")) await hooks.event({ event: payload })
  else await hooks[hook](payload.input, payload.output)
  if (hook === "chat.message") outputs.push(payload.output)
  if (waits) await new Promise((done) => setTimeout(done, waits))
}
await hooks.dispose()
console.log(JSON.stringify({ twice: Object.keys(twice), outputs, toasts }))
"""

SPY = """#!{python}
import json, sys
line = {{"words": sys.argv[1:], "payload": json.load(sys.stdin)}}
with open({log!r}, "a") as log:
    log.write(json.dumps(line) + "\\n")
if line["payload"].get("hook") == "chat.message":
    print(json.dumps({{"additionalContext": "note", "systemMessage": "hello"}}))
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def play(tmp_path: Path, worktree: Path, program: Path, events: list[Any]) -> Any:  # Any: JSON
    """Install the plugin, and have it see these events."""
    assert main(["hooks", "install", "opencode", "--executable", str(program), "-q"]) == 0
    plugin = Path(os.environ["HOME"]) / ".config" / "opencode" / "plugins" / "shadowtree.js"
    copy = tmp_path / "plugin.mjs"
    copy.write_text(plugin.read_text())
    player, script = tmp_path / "play.mjs", tmp_path / "script.json"
    player.write_text(PLAY)
    script.write_text(json.dumps(events))
    words = ["node", str(player), str(copy), str(worktree), str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def real_events() -> Any:  # Any: JSON
    return json.loads(PAYLOADS.read_text())


def spy(tmp_path: Path, worktree: Path, events: list[Any]) -> tuple[Any, list[Any]]:  # Any: JSON
    """Give what the player saw, and what the program was called with."""
    log = tmp_path / "calls"
    program = write_program(tmp_path / "bin" / "shadowtree", SPY.format(python=sys.executable, log=str(log)))
    seen = play(tmp_path, worktree, program, events)
    return seen, [json.loads(line) for line in log.read_text().splitlines()]


def test_what_really_happened_is_reported_in_order(tmp_path: Path, worktree: Path, real_events: Any) -> None:
    seen, calls = spy(tmp_path, worktree, real_events)
    reported = [
        call["payload"].get("hook") or ("revert", call["payload"]["revert"])
        for call in calls
        if call["words"][-1] == "opencode"
    ]

    turn = ["chat.message", "tool.execute.before", "tool.execute.after", "session.idle"]
    cut = ["chat.message", "tool.execute.before", "session.idle", "tool.execute.after", "session.idle"]
    reverted, forward = ("revert", SECOND), ("revert", None)
    assert reported == ["session.created", *turn, *turn, reverted, forward, *cut, reverted, *turn, "dispose"]
    assert {tuple(call["words"]) for call in calls} == {("hook", "opencode"), ("hooks", "follow", "opencode")}
    assert seen["twice"] == [], "a second copy of the file does nothing"


def test_only_ids_texts_names_and_paths_are_handed_on(
    tmp_path: Path, worktree: Path, real_events: Any
) -> None:
    _, calls = spy(tmp_path, worktree, real_events)
    steps = [call["payload"] for call in calls if call["payload"].get("hook") == "tool.execute.before"]
    begins = [call["payload"] for call in calls if call["payload"].get("hook") == "chat.message"]

    assert steps[0]["payload"] == {
        "input": {"tool": "bash", "sessionID": SESSION, "callID": "call_000002_0", "args": {}}
    }
    assert begins[0] == {
        "hook": "chat.message",
        "directory": str(worktree),
        "payload": {
            "input": {"sessionID": SESSION},
            "output": {
                "message": {"id": FIRST},
                "parts": [{"type": "text", "text": "run: echo v1 > f.txt\nsay: one"}],
            },
        },
    }


def test_what_the_hook_answers_reaches_the_model_and_the_user(
    tmp_path: Path, worktree: Path, real_events: Any
) -> None:
    seen, _ = spy(tmp_path, worktree, real_events[:2])
    part = seen["outputs"][0]["parts"][-1]

    assert part["text"] == "note"
    assert part["synthetic"]
    assert part["id"].startswith("prt_")
    assert (part["sessionID"], part["messageID"]) == (SESSION, FIRST)
    assert seen["toasts"][0]["body"]["message"] == "hello"


def test_a_revert_that_is_taken_back_is_told_and_one_that_is_left_is_not(
    tmp_path: Path, worktree: Path
) -> None:
    def update(revert: object) -> dict[str, Any]:
        info = {"id": "s", **({"revert": {"messageID": revert}} if revert else {})}
        return {
            "hook": "event session.updated",
            "payload": {"type": "session.updated", "properties": {"info": info}},
        }

    removed = {"type": "message.removed", "properties": {"sessionID": "s", "messageID": "m2"}}
    left = {"hook": "event message.removed", "payload": removed}
    events = [
        update(None),
        update("m2"),
        update("m2"),
        update("m1"),
        update(None),
        update("m2"),
        left,
        update(None),
    ]
    _, calls = spy(tmp_path, worktree, events)

    assert [call["payload"]["revert"] for call in calls] == ["m2", "m1", None, "m2"]


def test_a_sub_agent_works_in_its_parents_turn(tmp_path: Path, worktree: Path) -> None:
    info = {"id": "child", "parentID": "s"}
    message = {"message": {"id": "m", "sessionID": "child"}, "parts": []}
    idle = {"type": "session.idle", "properties": {"sessionID": "child"}}
    tool = {"tool": "write", "sessionID": "child", "callID": "c"}
    events = [
        {
            "hook": "event session.created",
            "payload": {"type": "session.created", "properties": {"info": info}},
        },
        {"hook": "chat.message", "payload": {"input": {"sessionID": "child"}, "output": message}},
        {
            "hook": "tool.execute.before",
            "payload": {"input": tool, "output": {"args": {"filePath": "/p/a", "content": "secret"}}},
        },
        {
            "hook": "tool.execute.before",
            "payload": {"input": {**tool, "tool": "read"}, "output": {"args": {}}},
        },
        {"hook": "event session.idle", "payload": idle},
    ]
    _, [call] = spy(tmp_path, worktree, events)

    assert call["payload"]["payload"]["input"] == {
        "tool": "write",
        "sessionID": "s",
        "callID": "c",
        "args": {"filePath": "/p/a"},
    }


def test_our_own_command_is_named(tmp_path: Path, worktree: Path) -> None:
    message = {"message": {"id": "m", "sessionID": "s"}, "parts": [{"type": "text", "text": "Undid 1 turn"}]}
    before = {
        "input": {"command": "shadowtree-undo", "sessionID": "s", "arguments": ""},
        "output": {"parts": []},
    }
    events = [
        {"hook": "command.execute.before", "payload": before},
        {"hook": "chat.message", "payload": {"input": {"sessionID": "s"}, "output": message}},
        {"hook": "chat.message", "payload": {"input": {"sessionID": "s"}, "output": message}},
    ]
    _, calls = spy(tmp_path, worktree, events)

    assert [call["payload"].get("command") for call in calls[:2]] == ["shadowtree-undo", None]


BAD: list[dict[str, Any]] = [
    {"hook": "event session.created", "payload": {"type": "session.created"}},
    {"hook": "event session.updated", "payload": {"type": "session.updated", "properties": {}}},
    {"hook": "event", "payload": None},
    {"hook": "chat.message", "payload": {"input": None, "output": {}}},
    {"hook": "tool.execute.before", "payload": {"input": {"tool": "bash", "sessionID": 7}, "output": {}}},
    {"hook": "tool.execute.after", "payload": {}},
    {"hook": "command.execute.before", "payload": {}},
]


@pytest.mark.parametrize("state", ["fails", "is gone", "prints no JSON"])
def test_nothing_throws_whatever_comes_and_whatever_the_program_does(
    tmp_path: Path, worktree: Path, real_events: Any, state: str
) -> None:
    text = "#!/bin/sh\nexit 7\n" if state == "fails" else "#!/bin/sh\ncat > /dev/null; echo hello\n"
    program = write_program(tmp_path / "bin" / "shadowtree", text)
    if state == "is gone":
        program.write_text("#!/nowhere\n")
    events = [each for each in BAD if each["hook"] != "event"] + real_events[:4]
    seen = play(tmp_path, worktree, program, events)

    assert len(seen["outputs"][-1]["parts"]) == 1


def test_turns_are_recorded_and_the_undo_of_the_agent_is_followed(
    tmp_path: Path, worktree: Path, real_events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real events, with the real program; the agent itself writes no file here."""
    monkeypatch.setenv("CI", "1")
    text = f'#!/bin/sh\nPYTHONPATH={PACKAGE_PLACE} exec {sys.executable} -m shadowtree "$@"\n'
    program = write_program(tmp_path / "bin" / "shadowtree", text)
    play(tmp_path, worktree, program, real_events)

    with Shadow(worktree, session=NAME) as shadow:
        messages = {message.id: message for message in shadow.messages()}
    assert {id: message.state for id, message in messages.items()} == {
        FIRST: "active",
        SECOND: "archived",
        THIRD: "archived",
        LAST: "active",
    }
    assert [len(message.steps) for message in messages.values()] == [1, 1, 1, 1]
    assert messages[FIRST].meta == {"agent": "opencode"}
    assert list(worktree.iterdir()) == []
