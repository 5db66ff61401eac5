"""A stand-in for the servers of models, on loopback: it calls the tools that a test scripts for a prompt.

It speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's generateContent,
streamed or whole. How many results of tools follow the prompt in a request says which call is next, so
requests may be repeated. Those that offer no tools, for titles and the like, get a short text.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any, NamedTuple

DONE = "all done"
Json = dict[str, Any]  # Any: JSON
Events = list[tuple[str | None, Json | str]]

_numbers = count(1)


class Call(NamedTuple):
    """A call of one of the agent's tools."""

    tool: str
    arguments: Json


class Said(NamedTuple):
    """One entry of a request's conversation that is not the model's."""

    text: str
    results: int
    """How many results of tools it holds."""


class Model:
    """What the model does, and what it was asked."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._prompt = ""
        self._calls: tuple[Call, ...] = ()
        self._requests: list[Json] = []

    def play(self, prompt: str, *calls: Call) -> None:
        """Answer this prompt with these calls, one after the other; forget the requests so far."""
        self._prompt, self._calls = prompt, calls
        self._requests = []

    def was_told(self, text: str) -> bool:
        """Whether any request since `play` holds this text."""
        return any(text in each for request in self._requests for each in _texts(request))

    def last_request(self) -> str:
        """Give the end of the last request, for a person to read."""
        return json.dumps(self._requests[-1], indent=1)[-4000:] if self._requests else "no requests"

    def answer(self, body: Json, format: Format) -> Call | None:
        """Give the next call; None: there is none left, or this is no request of a turn."""
        if not format.offers_tools(body):
            return None
        self._requests.append(body)
        said = list(format.read(body))
        starts = [at for at, each in enumerate(said) if self._prompt in each.text]
        if not starts:
            return None
        done = sum(each.results for each in said[starts[-1] :])
        return self._calls[done] if done < len(self._calls) else None


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


@dataclass(frozen=True)
class Format:
    """How one kind of server reads and writes."""

    read: Callable[[Json], Iterable[Said]]
    write: Callable[[Json, Call | None], tuple[Json, Events]]
    """The answer as a whole, and as a stream of named events."""

    def offers_tools(self, body: Json) -> bool:
        return bool(body.get("tools"))


def _join(content: Any) -> str:  # Any: JSON
    parts = content if isinstance(content, list) else [{"text": content}]
    return "\n".join(part.get("text") or "" for part in parts)


# Anthropic's Messages


def _read_messages(body: Json) -> Iterator[Said]:
    for message in body["messages"]:
        if message["role"] == "user":
            parts = message["content"] if isinstance(message["content"], list) else []
            results = sum(part["type"] == "tool_result" for part in parts)
            yield Said(_join(message["content"]), results)


def _write_messages(body: Json, call: Call | None) -> tuple[Json, Events]:
    number = next(_numbers)
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    if call is None:
        block: Json = {"type": "text", "text": DONE}
        empty: Json = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": DONE}
    else:
        empty = {"type": "tool_use", "id": f"toolu_{number:06}", "name": call.tool, "input": {}}
        block = {**empty, "input": call.arguments}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
    head = {
        "id": f"msg_{number:06}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    nothing: Json = {"content": [], "stop_reason": None, "stop_sequence": None}
    events: list[tuple[str, Json]] = [
        ("message_start", {"message": {**head, **nothing}}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": stop, "usage": {"output_tokens": 1}}),
        ("message_stop", {}),
    ]
    return {**head, "content": [block], **stop}, [(name, {"type": name, **more}) for name, more in events]


# OpenAI's Responses


def _read_responses(body: Json) -> Iterator[Said]:
    for item in body["input"]:
        if item.get("type", "").endswith("call_output"):
            yield Said("", 1)
        elif item.get("role") == "user":
            yield Said(_join(item["content"]), 0)


def _write_responses(body: Json, call: Call | None) -> tuple[Json, Events]:
    number = next(_numbers)
    if call is None:
        text = {"type": "output_text", "text": DONE, "annotations": []}
        item: Json = {"type": "message", "id": f"msg_{number:06}", "role": "assistant", "content": [text]}
    else:
        item = {"id": f"fc_{number:06}", "call_id": f"call_{number:06}", "name": call.tool}
        is_text = any(tool.get("name") == call.tool and tool["type"] == "custom" for tool in body["tools"])
        if is_text:
            item |= {"type": "custom_tool_call", "input": call.arguments["input"]}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(call.arguments)}
    usage = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    head = {"id": f"resp_{number:06}", "object": "response", "created_at": 0, "model": body["model"]}
    whole = {**head, "status": "completed", "output": [{**item, "status": "completed"}], "usage": usage}
    begun = {**head, "status": "in_progress", "output": [], "usage": None}
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "status": "in_progress"}}),
        ("response.output_item.done", {"output_index": 0, "item": {**item, "status": "completed"}}),
        ("response.completed", {"response": whole}),
    ]
    return whole, [
        (name, {"type": name, "sequence_number": at, **more}) for at, (name, more) in enumerate(events)
    ]


# OpenAI's Chat Completions


def _read_chat(body: Json) -> Iterator[Said]:
    for message in body["messages"]:
        if message["role"] in ("user", "tool"):
            yield Said(_join(message["content"]), int(message["role"] == "tool"))


def _write_chat(body: Json, call: Call | None) -> tuple[Json, Events]:
    number = next(_numbers)
    message: Json = {"role": "assistant", "content": DONE}
    if call is not None:
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        made = {"index": 0, "id": f"call_{number:06}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [made]}
    reason = "tool_calls" if call else "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": f"chat_{number:06}", "created": 0, "model": body["model"]}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    chunk = {**head, "object": "chat.completion.chunk"}
    return whole, [
        (None, {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        (None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        (None, {**chunk, "choices": [], "usage": usage}),
        (None, "[DONE]"),
    ]


# Gemini's generateContent


def _read_contents(body: Json) -> Iterator[Said]:
    for content in body["contents"]:
        if content.get("role") != "model":
            yield Said(_join(content["parts"]), sum("functionResponse" in part for part in content["parts"]))


def _write_contents(body: Json, call: Call | None) -> tuple[Json, Events]:
    part: Json = {"text": DONE}
    if call is not None:
        part = {"functionCall": {"name": call.tool, "args": call.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    whole = {"candidates": [candidate], "usageMetadata": usage, "responseId": f"resp_{next(_numbers):06}"}
    return whole, [(None, whole)]


FORMATS = {
    "/messages": Format(_read_messages, _write_messages),
    "/responses": Format(_read_responses, _write_responses),
    "/chat/completions": Format(_read_chat, _write_chat),
    ":generateContent": Format(_read_contents, _write_contents),
    ":streamGenerateContent": Format(_read_contents, _write_contents),
}
"""By the end of the path that is asked."""


class _Handler(BaseHTTPRequestHandler):
    model: Model

    def do_GET(self) -> None:
        self._reply("application/json", json.dumps({"object": "list", "data": [], "models": []}))

    def do_HEAD(self) -> None:
        self._reply("application/json", "")

    def do_POST(self) -> None:
        body, path = json.loads(self._read_body() or b"{}"), self.path.partition("?")[0]
        format = next((each for end, each in FORMATS.items() if path.endswith(end)), None)
        if format is None:
            self._reply("application/json", json.dumps({"input_tokens": 1, "totalTokens": 1}))
            return
        whole, events = format.write(body, self.model.answer(body, format))
        if body.get("stream") or path.endswith(":streamGenerateContent"):
            self._reply("text/event-stream", "".join(map(_write_event, events)))
        else:
            self._reply("application/json", json.dumps(whole))

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content

    def _reply(self, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _write_event(event: tuple[str | None, Json | str]) -> str:
    name, content = event
    text = content if isinstance(content, str) else json.dumps(content)
    return (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


@contextmanager
def serve() -> Iterator[Model]:
    """Serve while the body runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {})) as server:
        server.daemon_threads = True
        model = Model(f"http://127.0.0.1:{server.server_port}")
        server.RequestHandlerClass.model = model  # type: ignore[attr-defined]  # the class made above
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield model
        server.shutdown()
        thread.join()
