"""The routes: the method, path and parameters of each, and the one call that it makes.

Nothing is decided here. A route reads its parameters, calls the library once, and writes the result as JSON.
The guard takes the known paths from this table, and `docs/openapi.json` is made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shadowtree
from shadowtree.base.frozen import frozen
from shadowtree.results.messages import FileDiff
from shadowtree.results.outcomes import Outcome
from shadowtree.shadow import Shadow
from shadowtree.web.answers import Refused, describe_outcome, find_image_type, make_file, make_json
from shadowtree.web.guard import Refusal
from shadowtree.web.parameters import CHOICES, COUNT, FLAG, NUMBER, TEXT, TEXTS, Parameter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from shadowtree.web.answers import Answer

Given = dict[str, Any]  # Any: of the parameters' own types
"""The parameters that a request has."""
Json = dict[str, Any]  # Any: JSON

_MOST_PATCH_CHARACTERS = 2_000_000
"""For all patches of an answer together."""
_MOST_FILE_BYTES = 20 << 20


@frozen
class Place:
    """What the routes of one server have in common."""

    shadow: Shadow
    beside: Shadow
    """Another one of the same directory, for slow calls: calls of one shadow wait for each other."""
    session: str | None
    """The session of requests that name none; None: the one that recorded last."""
    is_read_only: bool

    def choose(self, session: str | None, *, takes_long: bool = False) -> Shadow:
        """Return the shadow of a session; None: of the default one."""
        name, shadow = session or self.session, self.beside if takes_long else self.shadow
        return shadow.for_last_session() if name is None else shadow.for_session(name)


@frozen
class Route:
    """One route."""

    method: str
    path: str
    about: str
    """What it does, in the style of a command's help."""
    call: Callable[[Shadow, Given, Place], Any]  # Any: what there is to write as JSON, or an answer
    parameters: tuple[Parameter, ...]
    kind: str = "application/json"
    takes_long: bool = False

    @property
    def is_act(self) -> bool:
        """Whether it takes the id of a plan."""
        return any(parameter.name == "expect" for parameter in self.parameters)


def call_route(route: Route, given: Given, place: Place) -> Answer:
    """Call a route with the parameters of a request; raise what the library raises."""
    shadow = place.choose(given.pop("session", None), takes_long=route.takes_long)
    if route.method == "POST" and not given.get("dry_run"):
        if place.is_read_only:
            raise Refused(Refusal(403, "ReadOnly", "this server was started with --read-only"))
        if route.is_act and given.get("expect") is None:
            told = "give the plan's id as 'expect', or 'dry_run' to get the plan first"
            raise Refused(Refusal(428, "ExpectMissing", told))
    result = route.call(shadow, given, place)
    if route.kind != "application/json":
        answer: Answer = result
        return answer
    return make_json(describe_outcome(result, shadow.session) if isinstance(result, Outcome) else result)


# Reading


def _show_state(shadow: Shadow, given: Given, place: Place) -> Json:
    about = {"version": shadowtree.__version__, "read_only": place.is_read_only}
    return {**about, **shadow.state().to_dict()}


def _show_message(shadow: Shadow, given: Given, place: Place) -> Json:
    message, diffs = shadow.show(given["id"])
    files = _describe_diffs(diffs)
    for each in files:
        del each["patch"], each["cut"]
    document = {**message.to_dict(), "git_head": message.git_head, "skipped": message.skipped}
    additions, deletions = (sum(each[name] for each in files) for name in ("additions", "deletions"))
    counts = {"additions": additions, "deletions": deletions}
    return {"message": document, "steps": message.steps, "files": files, **counts}


def _show_diff(shadow: Shadow, given: Given, place: Place) -> Json:
    message, a, b = given.pop("message", None), given.pop("a", None), given.pop("b", None)
    if message is not None:
        return {"files": _describe_diffs(shadow.show(message, **given)[1])}
    return {"files": _describe_diffs(shadow.diff(a, b, **given))}


def _describe_diffs(diffs: Iterable[FileDiff]) -> list[Json]:
    """Return diffs as JSON: a renamed file once, and patches only up to a total size."""
    found, room = [], _MOST_PATCH_CHARACTERS
    every = list(diffs)
    renamed = {each.renamed_from for each in every if each.rename is not None}
    for each in every:
        if each.path in renamed and each.status == "deleted":
            continue
        shown = each.rename or each
        is_cut = len(shown.patch) > room
        room -= 0 if is_cut else len(shown.patch)
        entry = shown.to_dict() | {"status": "renamed" if each.rename is not None else each.status}
        entry |= {"patch": "" if is_cut else shown.patch, "cut": is_cut}
        entry |= {"too_large": shown.is_too_large, "image": find_image_type(each.path) is not None}
        found.append(entry)
    return found


def _read_file(shadow: Shadow, given: Given, place: Place) -> Answer:
    content = shadow.read_file(given["ref"], given["path"])
    if len(content) > _MOST_FILE_BYTES:
        raise Refused(Refusal(413, "TooLarge", f"the file has {len(content):,} bytes"))
    return make_file(given["path"], content)


# The table

_SESSION = Parameter("session", TEXT, "The session; by default the one that recorded last")
_MESSAGE = "A message: its id or a beginning of it, `#7`, `@` or `@~2`"
_REF = "A message (the state after it), a message followed by `^` (the state before it), or a tree id"
_PATHS = Parameter("paths", TEXTS, "Only these files and directories")
_PATH = Parameter("path", TEXTS, "Only these files and directories; may be repeated", "paths")
_MANNER = (
    _SESSION,
    Parameter("dry_run", FLAG, "Change nothing, and return the plan"),
    Parameter("expect", TEXT, "The `id` of the plan to carry out; needed unless `dry_run`"),
    Parameter(
        "on_conflict",
        CHOICES,
        "What to do with files that changed since: `abort`, `merge`, `keep` or `overwrite`, for all or by"
        ' path; `"*"` stands for all others',
    ),
    Parameter("markers", FLAG, "Merge, and write conflict markers where changes overlap"),
    Parameter("diff", FLAG, "With `dry_run`, return also how each file would differ"),
)


def _look(
    name: str,
    about: str,
    call: Callable[[Shadow, Given, Place], Any],  # Any: JSON
    *parameters: Parameter,
    kind: str = "application/json",
    takes_long: bool = False,
) -> Route:
    return Route("GET", f"/api/{name}", about, call, (*parameters, _SESSION), kind, takes_long)


def _act(
    name: str, about: str, call: Callable[[Shadow, Given, Place], Outcome], *parameters: Parameter
) -> Route:
    return Route("POST", f"/api/{name}", about, call, (*parameters, *_MANNER))


EVENTS = _look(
    "events",
    "Follow what is recorded or undone, by any process, as server-sent events",
    lambda shadow, given, place: None,  # `events` serves it
    Parameter("after", NUMBER, "Begin after the update with this number; by default with the next one"),
    kind="text/event-stream",
)
ROUTES = (
    _look("state", "Show where a session stands, by turns", _show_state),
    _look(
        "sessions",
        "List the sessions; the one that recorded last comes last",
        lambda shadow, given, place: {"sessions": shadow.sessions()},
    ),
    _look(
        "timeline",
        "List the messages of a session as short rows, oldest first",
        lambda shadow, given, place: shadow.timeline(**given),
        Parameter("limit", COUNT, "Only the newest messages, this many", "last"),
        Parameter("before", NUMBER, "Only messages with a number below this one"),
    ),
    _look(
        "message",
        "Show a message, its steps and the files that it changed",
        _show_message,
        Parameter("id", TEXT, _MESSAGE, is_required=True),
    ),
    _look(
        "diff",
        "Show what a message changed, or how two states differ, as unified diffs",
        _show_diff,
        Parameter("message", TEXT, _MESSAGE),
        Parameter("a", TEXT, f"{_REF}; by default the last record"),
        Parameter("b", TEXT, f"{_REF}; by default the files as they are now"),
        _PATH,
        Parameter("context", NUMBER, "How many unchanged lines to show around a change; by default 3"),
    ),
    _look(
        "file",
        "Return a file as of a message or tree; images with their type, anything else as an attachment",
        _read_file,
        Parameter("ref", TEXT, _REF, is_required=True),
        Parameter("path", TEXT, "The file, relative to the worktree", is_required=True),
        kind="application/octet-stream",
    ),
    _look(
        "branches",
        "List the branches of a session, oldest first",
        lambda shadow, given, place: {"branches": shadow.branches()},
    ),
    _look(
        "status",
        "Show what changed since the last record, and what is not protected",
        lambda shadow, given, place: shadow.status(),
        takes_long=True,
    ),
    _look(
        "unprotected",
        "List the files that changed in a session and that are not protected",
        lambda shadow, given, place: {"unprotected": shadow.unprotected()},
    ),
    _look(
        "stats",
        "Show what the store holds and how much space it takes",
        lambda shadow, given, place: shadow.stats(),
        takes_long=True,
    ),
    _look(
        "verify",
        "Verify the store",
        lambda shadow, given, place: shadow.check(),
        takes_long=True,
    ),
    EVENTS,
    _act(
        "undo",
        "Undo the last turns",
        lambda shadow, given, place: shadow.undo(given.pop("turns", 1), **given),
        Parameter("turns", COUNT, "How many turns; by default 1"),
    ),
    _act(
        "redo",
        "Redo the next undone turns",
        lambda shadow, given, place: shadow.redo(given.pop("turns", 1), **given),
        Parameter("turns", COUNT, "How many turns; by default 1, and null for all", is_nullable=True),
    ),
    _act(
        "revert",
        "Go back to before a message, or undo only that message",
        lambda shadow, given, place: shadow.revert(given.pop("message"), **given),
        Parameter("message", TEXT, _MESSAGE, is_required=True),
        Parameter("only", FLAG, "Undo only this message, and keep later ones"),
        Parameter("step", TEXT, "Only go back to before this step of it"),
        _PATHS,
    ),
    _act(
        "unrevert",
        "Reverse the last act since the newest message",
        lambda shadow, given, place: shadow.unrevert(**given),
        Parameter("undo", FLAG, "Reverse the very last act, even an unrevert"),
    ),
    _act(
        "switch",
        "Go to a branch or a message",
        lambda shadow, given, place: shadow.switch(given.pop("ref"), **given),
        Parameter("ref", TEXT, "A branch, a message, or `-` for where you were before", is_required=True),
    ),
    _act(
        "restore",
        "Restore all files, or some, as of a message or tree; the timeline stays as it is",
        lambda shadow, given, place: shadow.restore(given.pop("ref"), **given),
        Parameter("ref", TEXT, _REF, is_required=True),
        _PATHS,
    ),
    Route(
        "POST",
        "/api/protect",
        "Record ignored or too big files from now on, by a line in `.shadowtreeignore`",
        lambda shadow, given, place: {"protected": shadow.protect(*given.pop("paths"), **given)},
        (
            _SESSION,
            Parameter("paths", TEXTS, "The files", is_required=True),
            Parameter("dry_run", FLAG, "Write nothing, and return the lines"),
        ),
    ),
)
BY_PATH = {route.path: route for route in ROUTES}
