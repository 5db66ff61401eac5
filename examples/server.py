"""The undo endpoint of an agent server: sessions that share one directory, over HTTP.

    python examples/server.py [--port PORT] DIRECTORY

    POST /session/{id}/message {"id": "m1", "role": "user", "text": "hi", "writes": {"a": "x"}, "deletes": []}
    POST /session/{id}/undo    {"count": 2}: the last two turns
    POST /session/{id}/redo    {"count": 2}
    POST /session/{id}/revert  {"message": "m1"}: to where everything was before it
    GET  /session/{id}/messages

A message stands for all that an agent may do; here it writes and deletes files. While a session is at work,
its undo is refused (409). So is an undo of files that somebody else changed since (409, with the list),
unless the body says `"on_conflict": "keep"` or `"overwrite"`.

It listens on 127.0.0.1 alone and refuses browsers, because any web page can make one send requests here. It
asks for no password: whoever has an account on this machine can write into the directory.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from shadowtree import (
    Conflict,
    DuplicateMessage,
    InvalidInput,
    Locked,
    Outcome,
    OutOfSpace,
    Shadow,
    ShadowError,
    UnknownName,
)

Json = dict[str, Any]  # Any: JSON
OnConflict = Literal["abort", "keep", "overwrite"]

MAX_BODY_BYTES = 1 << 20


class Session:
    """One conversation. It does one thing at a time, and says so instead of waiting."""

    def __init__(self, shadow: Shadow) -> None:
        self._shadow = shadow
        self._work = Lock()

    def run(self, task: Task) -> Json:
        """Do what a message asks for, and record what it changed."""
        with self._at_work() as shadow:
            shadow.begin(task.id, text=task.text, role=task.role)
            try:
                failed = task.do(shadow.worktree)
            finally:
                # Other sessions write at the same time; their paths are no part of this message.
                message = shadow.end(task.id, paths=[*task.writes, *task.deletes])
        return message.to_dict() | {"files": message.patch.to_dict()["files"], "failed": failed}

    def undo(self, count: int, on_conflict: OnConflict) -> Json:
        """Take back the last turns."""
        with self._at_work() as shadow:
            outcome = shadow.undo(count, on_conflict=on_conflict)
        return {"turns": outcome.turns, "messages_removed": outcome.messages, **files_of(outcome)}

    def redo(self, count: int, on_conflict: OnConflict) -> Json:
        """Bring back turns that were undone."""
        with self._at_work() as shadow:
            outcome = shadow.redo(count, on_conflict=on_conflict)
        return {"turns": outcome.turns, "messages_restored": outcome.messages, **files_of(outcome)}

    def revert(self, message: str, on_conflict: OnConflict) -> Json:
        """Go to where everything was before a message: back, or forward if it is undone."""
        with self._at_work() as shadow:
            outcome = shadow.revert(message, on_conflict=on_conflict)
        return {"messages": outcome.messages, **files_of(outcome)}

    def messages(self) -> Json:
        """List the messages, also while at work."""
        return {"messages": [message.to_dict() for message in self._shadow.messages()]}

    @contextmanager
    def _at_work(self) -> Iterator[Shadow]:
        if not self._work.acquire(blocking=False):
            raise Refusal(HTTPStatus.CONFLICT, "the session is at work", error="Busy")
        try:
            yield self._shadow
        finally:
            self._work.release()


class Sessions:
    """All conversations about one directory, those of earlier runs too."""

    def __init__(self, directory: Path) -> None:
        with Shadow(directory) as shadow:
            shadow.take_snapshot()  # What cannot be protected is refused here, not in the midst of work.
            names = {message.session for message in shadow.messages(all_sessions=True)}
        self.root = shadow.worktree
        self._sessions = {name: Session(Shadow(self.root, session=name)) for name in names}
        self._lock = Lock()

    def find(self, name: str) -> Session:
        """Give a session that has begun."""
        with self._lock:
            if name not in self._sessions:
                raise Refusal(HTTPStatus.NOT_FOUND, f"no session named {name!r}", error="UnknownSession")
            return self._sessions[name]

    def find_or_begin(self, name: str) -> Session:
        """Give a session, a new one where there is none."""
        with self._lock:
            if name not in self._sessions:
                self._sessions[name] = Session(Shadow(self.root, session=name))
            return self._sessions[name]


@dataclass(frozen=True)
class Task:
    """What a message is to do."""

    id: str
    text: str
    role: str | None
    writes: dict[str, bytes]
    deletes: list[str]

    def do(self, root: Path) -> dict[str, str]:
        """Write and delete. What fails is told, and does not stop the rest."""
        failed: dict[str, str] = {}
        for path, content in self.writes.items():
            with noting(path, failed):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
        for path in self.deletes:
            with noting(path, failed):
                (root / path).unlink()
        return failed


@contextmanager
def noting(path: str, failed: dict[str, str]) -> Iterator[None]:
    """Note it if what is done to a path fails."""
    try:
        yield
    except OSError as error:
        failed[path] = error.strerror or str(error)


def files_of(outcome: Outcome) -> Json:
    """Tell what became of the files."""
    return {
        "files_reverted": sorted([*outcome.restored, *outcome.deleted]),
        "files_kept": outcome.kept,
        "files_skipped": [skipped.to_dict() for skipped in outcome.skipped],
        "tree_restored": outcome.after,
        "complete": outcome.complete,
        "notes": outcome.notes,
    }


# From JSON to values


def read_task(body: Json, root: Path) -> Task:
    """Read what a message is to do."""
    writes, deletes = body.get("writes", {}), body.get("deletes", [])
    if not isinstance(writes, dict) or not isinstance(deletes, list):
        raise Refusal(HTTPStatus.BAD_REQUEST, "writes has to be an object, deletes a list")
    return Task(
        id=read_text(body, "id"),
        text=read_text(body, "text", ""),
        role=read_text(body, "role") if body.get("role") is not None else None,
        writes={read_path(root, path): read_text(writes, path).encode() for path in writes},
        deletes=[read_path(root, path) for path in deletes],
    )


def read_path(root: Path, path: object) -> str:
    """Read the path of a file inside the directory; it must not go through a link."""
    place = root / path if isinstance(path, str) and "\0" not in path else root
    if root not in place.parents or place.resolve() != place:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{path!r} is no plain path inside of the directory")
    return str(place.relative_to(root))


def read_text(body: Json, key: str, default: object = None) -> str:
    """Read a text."""
    value = body.get(key, default)
    if not isinstance(value, str):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{key!r} has to be a text")
    return value


def read_count(body: Json) -> int:
    """Read how many turns are meant."""
    count = body.get("count", 1)
    if type(count) is not int or count < 1:  # JSON's true would be an int.
        raise Refusal(HTTPStatus.BAD_REQUEST, "count has to be a number of turns, 1 or more")
    return count


def read_on_conflict(body: Json) -> OnConflict:
    """Read what to do with files that somebody else changed."""
    match body.get("on_conflict", "abort"):
        case "abort":
            return "abort"
        case "keep":
            return "keep"
        case "overwrite":
            return "overwrite"
    raise Refusal(HTTPStatus.BAD_REQUEST, "on_conflict has to be abort, keep or overwrite")


# HTTP


METHODS = {"message": "POST", "undo": "POST", "redo": "POST", "revert": "POST", "messages": "GET"}
"""What can be asked of a session, and how."""

STATUSES: dict[type[ShadowError], HTTPStatus] = {
    DuplicateMessage: HTTPStatus.CONFLICT,
    InvalidInput: HTTPStatus.BAD_REQUEST,
    UnknownName: HTTPStatus.NOT_FOUND,
    Conflict: HTTPStatus.CONFLICT,
    Locked: HTTPStatus.SERVICE_UNAVAILABLE,
    OutOfSpace: HTTPStatus.INSUFFICIENT_STORAGE,
    ShadowError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""What the errors of shadowtree are in HTTP; the first that fits counts."""


class Refusal(Exception):
    """Why a request is not done, as the client is told."""

    def __init__(self, status: HTTPStatus, message: str, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.body: Json = {"error": status.phrase.replace(" ", ""), "message": message, **more}


class Server(ThreadingHTTPServer):
    """One thread per request. Those under way are waited for at the end, so that messages get theirs."""

    daemon_threads = False

    def __init__(self, port: int, sessions: Sessions) -> None:
        self.sessions = sessions
        super().__init__(("127.0.0.1", port), Handler)

    def stop(self, *_: object) -> None:
        """Handle Ctrl-C and the like: take no more requests."""
        Thread(target=self.shutdown).start()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version = "shadowtree-example"
    sys_version = ""
    timeout = 10
    """How many seconds a client may keep us waiting for what it wants to send."""

    def respond(self) -> None:
        """Answer, whatever happens."""
        try:
            answer = self._answer()
        except Refusal as refusal:
            self._send(refusal.status, refusal.body)
        except ShadowError as error:
            self._send(*explain(error))
        except Exception:  # noqa: BLE001  nobody above can answer; the client learns no details
            self.log_error("%s", traceback.format_exc())
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
        else:
            self._send(HTTPStatus.OK, answer)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = respond

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer in JSON, also to what is no HTTP."""
        status = HTTPStatus(code)
        self._send(status, Refusal(status, message or status.description).body)

    def _answer(self) -> Json:
        content = self._read_content()  # All of it: unread bytes could cost the client the answer.
        self._refuse_browsers()
        name, act = self._read_path()
        if self.command != METHODS[act]:
            raise Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{act} wants {METHODS[act]}", allow=METHODS[act])
        body = self._read_json(content) if self.command == "POST" else {}
        sessions = self.server.sessions
        match act:
            case "message":
                task = read_task(body, sessions.root)
                return sessions.find_or_begin(name).run(task)
            case "undo":
                return sessions.find(name).undo(read_count(body), read_on_conflict(body))
            case "redo":
                return sessions.find(name).redo(read_count(body), read_on_conflict(body))
            case "revert":
                return sessions.find(name).revert(read_text(body, "message"), read_on_conflict(body))
            case _:
                return sessions.find(name).messages()

    def _read_content(self) -> bytes:
        try:
            length = int(self.headers.get("Content-Length", "0"))
        except ValueError:
            length = -1
        if length < 0 or "Transfer-Encoding" in self.headers:
            raise Refusal(HTTPStatus.BAD_REQUEST, "Content-Length has to tell the size of the body")
        if length > MAX_BODY_BYTES:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {MAX_BODY_BYTES} bytes")
        try:
            content = self.rfile.read(length)
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive") from None
        if len(content) < length:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is shorter than Content-Length says")
        return content

    def _refuse_browsers(self) -> None:
        """Refuse what a web page sends: it has an Origin, or a Host whose name its owner lets point here."""
        hosts = [host.rpartition(":")[0] or host for host in self.headers.get_all("Host", [])]
        if hosts not in (["127.0.0.1"], ["localhost"]) or "Origin" in self.headers:
            raise Refusal(HTTPStatus.FORBIDDEN, "only programs on this machine may ask")

    def _read_path(self) -> tuple[str, str]:
        match urlsplit(self.path).path.split("/"):
            case ["", "session", name, act] if name and act in METHODS:
                return unquote(name, errors="surrogateescape"), act
        raise Refusal(HTTPStatus.NOT_FOUND, "nothing is here")

    def _read_json(self, content: bytes) -> Json:
        if self.headers.get_content_type() != "application/json":
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type has to be application/json")
        try:
            body = json.loads(content)
            json.dumps(body, ensure_ascii=False).encode()  # JSON can hold halves of characters.
        except (ValueError, RecursionError):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is no JSON") from None
        if not isinstance(body, dict):
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        return body

    def _send(self, status: HTTPStatus, answer: Json) -> None:
        content = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", answer["allow"])
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def explain(error: ShadowError) -> tuple[HTTPStatus, Json]:
    """Tell what went wrong in shadowtree; a conflict lists its paths."""
    status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
    answer: Json = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, Conflict):
        answer["conflicts"] = [conflict.to_dict() for conflict in error.conflicts]
    return status, answer


def main() -> int:
    """Serve a directory until Ctrl-C."""
    parser = argparse.ArgumentParser(description="An undo endpoint as an agent server would have it.")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="what the sessions work on")
    parser.add_argument("--port", type=int, default=8765, help="0 takes any that is free (%(default)s)")
    arguments = parser.parse_args()
    try:
        with Server(arguments.port, Sessions(arguments.directory)) as server:
            signal.signal(signal.SIGINT, server.stop)
            signal.signal(signal.SIGTERM, server.stop)
            print(f"http://127.0.0.1:{server.server_port}", flush=True)
            server.serve_forever()
    except (ShadowError, OSError, OverflowError) as error:
        print(f"server: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
