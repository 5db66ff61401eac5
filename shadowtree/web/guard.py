"""Decide which requests are let in. Pure: a request in, a refusal or None out.

Any web page can make a browser send requests to this machine, and so can any program of another user. So a
request must name this server as its host (a foreign name that points here is refused), come from no other
origin, carry the token, and, if it changes something, be a POST of JSON, which no form can send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hmac import compare_digest

from shadowtree.base.frozen import frozen

MAX_BODY_BYTES = 1 << 20
API = "/api/"
"""Paths that begin with this need the token; the page itself holds no data."""
_HOSTS = ("127.0.0.1", "localhost")
_OWN_SITES = ("same-origin", "none")
"""The values of Sec-Fetch-Site for a request of our page, and for an address that somebody typed."""


@frozen
class Request:
    """The head of a request."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, Sequence[str]]
    """All values, by name in lower case."""

    def find(self, name: str) -> str | None:
        """Return the value of a header; None: it is missing; empty, so wrong, if there are several."""
        values = self.headers.get(name, ())
        return None if not values else values[0] if len(values) == 1 else ""


@frozen
class Refusal:
    """Why a request is refused, as the client is informed."""

    status: int
    error: str
    message: str
    allow: str | None = None
    """The method that the route takes."""


@frozen
class Guard:
    """Checks requests; holds what they are compared with."""

    port: int
    token: str
    methods: Mapping[str, str]
    """The method of each path."""

    def refuse(self, request: Request) -> Refusal | None:
        """Return why a request is refused; None: it is let in."""
        return self._refuse_foreign(request) or self._refuse_unknown(request) or self._refuse_body(request)

    def _refuse_foreign(self, request: Request) -> Refusal | None:
        own = [f"{host}:{self.port}" for host in _HOSTS]
        if request.find("host") not in own:
            return Refusal(421, "ForeignHost", "the Host header must name this server")
        origin = request.find("origin")
        if origin is not None and origin not in [f"http://{host}" for host in own]:
            return Refusal(403, "ForeignOrigin", "requests from other web pages are refused")
        if not request.path.startswith(API):
            return None
        if (request.find("sec-fetch-site") or "none") not in _OWN_SITES:
            return Refusal(403, "ForeignOrigin", "requests from other web pages are refused")
        scheme, _, token = (request.find("authorization") or "").partition(" ")
        is_known = compare_digest(token.strip().encode("utf-8", "replace"), self.token.encode())
        if scheme.lower() != "bearer" or not is_known:
            return Refusal(
                401, "BadToken", "the token is missing or wrong; open the address that was printed"
            )
        return None

    def _refuse_unknown(self, request: Request) -> Refusal | None:
        method = self.methods.get(request.path)
        if method is None:
            return Refusal(404, "UnknownRoute", f"there is nothing at {request.path}")
        if request.method != method:
            return Refusal(405, "MethodNotAllowed", f"{request.path} takes {method}", method)
        return None

    def _refuse_body(self, request: Request) -> Refusal | None:
        length = request.find("content-length")
        if "transfer-encoding" in request.headers or (length is not None and not is_length(length)):
            return Refusal(400, "BadRequest", "the size of the body must be given by Content-Length")
        if int(length or 0) > MAX_BODY_BYTES:
            return Refusal(413, "TooLarge", f"a body has at most {MAX_BODY_BYTES:,} bytes")
        if request.method != "POST":
            return None
        kind = (request.find("content-type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return Refusal(415, "NotJson", "the body must be JSON, with Content-Type: application/json")
        return None


def is_length(text: str) -> bool:
    """Check that a text is a Content-Length: only digits, and not too many."""
    return text.isascii() and text.isdigit() and len(text) <= 18
