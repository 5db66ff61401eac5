"""The OpenAPI file is that of the routes, and every route is described in docs/http.md."""

from __future__ import annotations

import json

from shadowtree.web.routes import ROUTES
from tests.web.openapi import FILE, describe_routes


def test_the_file_is_what_the_routes_say() -> None:
    """Write it anew with `python -m tests.web.openapi`."""
    assert json.loads(FILE.read_text("utf-8")) == describe_routes()


def test_every_route_has_its_own_name_and_a_sentence() -> None:
    named = [document for each in describe_routes()["paths"].values() for document in each.values()]

    assert len({document["operationId"] for document in named}) == len(ROUTES)
    for document in named:
        assert document["summary"][0].isupper()
        assert not document["summary"].endswith(".")
        assert {"200", "400", "401", "403"} <= document["responses"].keys()


def test_every_route_and_parameter_is_on_the_page() -> None:
    page = (FILE.parent / "http.md").read_text("utf-8")

    for route in ROUTES:
        assert f"`{route.method} {route.path}`" in page
        for parameter in route.parameters:
            assert f"`{parameter.name}`" in page
