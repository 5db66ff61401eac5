"""A model's server on loopback that does what the prompt says: each line `run: COMMAND` is a call of `bash`.

It speaks OpenAI's Chat Completions and Anthropic's Messages, as far as the tests need them. It needs no
state: how many results of tools follow the last prompt says which line is next. It keeps what it was asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

DONE = "all done"
_LINE = "run: "
_OBSERVED = ("Observation:", "Call id:")
"""How smolagents begins what it says of results, as the user."""
_numbers = count(1)


def next_command(history: list[tuple[str, str]]) -> str | None:
    """Give what to run next, from roles and texts: `user`, or `result` for each result of a tool."""
    commands: list[str] = []
    for role, text in history:
        found = [
            line.strip().removeprefix(_LINE) for line in text.splitlines() if line.strip().startswith(_LINE)
        ]
        if role == "user" and found:
            commands = found
        elif role == "result":
            commands = commands[1:]
    return commands[0] if commands else None


def _flatten(content: Any) -> str:  # Any: JSON
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(part.get("text") or "" for part in parts)


def _answer_chat(body: dict[str, Any]) -> dict[str, Any]:
    history = []
    for message in body["messages"]:
        text = _flatten(message.get("content"))
        is_result = message["role"] == "tool" or text.startswith(_OBSERVED)
        history.append(("result" if is_result else message["role"], text))
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    command, number = next_command(history), next(_numbers)
    name, arguments = "bash", {"command": command}
    if command is None and "final_answer" in names:
        name, arguments = "final_answer", {"answer": DONE}
    message = {"role": "assistant", "content": DONE}
    if name in names and (command is not None or name != "bash"):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"call_{number:06}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": f"chat{number}", "object": "chat.completion", "created": 0, "model": "scripted"}
    return {**head, "choices": [choice], "usage": usage}


def _answer_messages(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    history = []
    for message in body["messages"]:
        parts = message["content"] if isinstance(message["content"], list) else []
        history += [("result", "") for part in parts if part["type"] == "tool_result"]
        history.append((message["role"], _flatten(message["content"])))
    command, number = next_command(history), next(_numbers)
    is_call = command is not None and any(tool["name"] == "Bash" for tool in body.get("tools", ()))
    block: dict[str, object] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": DONE}
    if is_call:
        block = {"type": "tool_use", "id": f"toolu_{number:06}", "name": "Bash", "input": {}}
        words = {"command": command, "description": "scripted"}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(words)}
    head = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
    }
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield "message_start", {"message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    stop = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    yield "message_delta", {"delta": stop, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


class _Handler(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self._reply("application/json", b"{}")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])) or b"{}"
        self.asked.append(text.decode())
        body = json.loads(text)
        if self.path.partition("?")[0].endswith("/chat/completions"):
            self._reply("application/json", json.dumps(_answer_chat(body)).encode())
        elif self.path.partition("?")[0].endswith("/messages") and body.get("stream"):
            events = [
                f"event: {name}\ndata: {json.dumps({'type': name, **content})}\n\n"
                for name, content in _answer_messages(body)
            ]
            self._reply("text/event-stream", "".join(events).encode())
        else:
            self._reply("application/json", b'{"input_tokens": 1}')

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _reply(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@dataclass
class Model:
    """The server, while it runs."""

    address: str
    asked: list[str]
    """The requests, as they came."""


@contextmanager
def serve() -> Iterator[Model]:
    """Serve while the body runs."""
    asked: list[str] = []
    handler = type("Handler", (_Handler,), {"asked": asked})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Model(f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()
        thread.join()
