"""The answers to clients: JSON documents, files and errors, with headers that restrict a browser."""

from __future__ import annotations

import json
from collections.abc import Mapping

from shadowtree.base import errors
from shadowtree.base.frozen import frozen
from shadowtree.results.outcomes import Outcome
from shadowtree.web.guard import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CAREFUL = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_NO_PAGE = "default-src 'none'; frame-ancestors 'none'; sandbox"
"""The policy of everything but the page: even if a browser shows it, nothing in it runs."""
_IMAGES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
}
"""The image types that hold nothing but pixels, by file name extension. SVG can hold scripts."""

STATUSES: dict[type[errors.ShadowError], int] = {
    errors.AmbiguousMessage: 400,
    errors.InvalidInput: 400,
    errors.NotWrapped: 404,
    errors.UnknownName: 404,
    errors.Conflict: 409,
    errors.Locked: 503,
    errors.OutOfSpace: 507,
    errors.ShadowError: 500,
}
"""The HTTP status of each error of the library; the first class that matches counts."""


@frozen
class Answer:
    """A status, a body, and headers of its own."""

    status: int
    kind: str
    body: bytes
    headers: Mapping[str, str]


class Refused(Exception):
    """Raised when a request must be refused after the guard has let it in."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def make_json(document: object, status: int = 200, **headers: str) -> Answer:
    """Answer with a document of plain values and results; names that are not UTF-8 are surrogate escapes."""
    text = json.dumps(document, separators=(",", ":"), default=lambda result: result.to_dict())
    own = {"Content-Security-Policy": _NO_PAGE, **headers}
    return Answer(status, "application/json", text.encode("ascii"), own)


def make_file(path: str, content: bytes) -> Answer:
    """Answer with the content of a file: an image with its type, anything else as an attachment."""
    kind = find_image_type(path)
    headers = {"Content-Security-Policy": _NO_PAGE}
    if kind is None:
        headers["Content-Disposition"] = "attachment"
    return Answer(200, kind or "application/octet-stream", content, headers)


def find_image_type(path: str) -> str | None:
    """Return the media type of an image, by its name; None: it is not an image."""
    return _IMAGES.get(path.rpartition(".")[2].lower())


def make_refusal(refusal: Refusal) -> Answer:
    """Answer a request that is refused."""
    headers = {} if refusal.allow is None else {"Allow": refusal.allow}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return make_json({"error": refusal.error, "message": refusal.message}, refusal.status, **headers)


def make_error(error: errors.ShadowError) -> Answer:
    """Answer with an error; for an act, also with the outcome or the current plan."""
    status = next(status for kind, status in STATUSES.items() if isinstance(error, kind))
    told: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}  # Any: JSON
    if isinstance(error, errors.PlanOutdated | errors.NotConfirmed) and error.plan is not None:
        told["plan"] = describe_outcome(error.plan.outcome)
    elif isinstance(error, errors.Conflict) and error.outcome is not None:
        told = {**describe_outcome(error.outcome), **told}
    return make_json(told, status)


def describe_outcome(outcome: Outcome, session: str | None = None) -> dict[str, Any]:  # Any: JSON
    """Return the JSON of an outcome or a plan, with each file, and the call that reverses it."""
    back = {"session": session, "undo": outcome.act == "unrevert"}
    return {
        "act": outcome.act,
        **outcome.to_dict(),
        "files": outcome.files,
        "back_call": None if outcome.back is None else {"route": "/api/unrevert", "body": back},
    }
