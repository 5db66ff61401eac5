"""The OpenAPI document of the routes, made from their table and from the schemas of their answers.

`python -m tests.web.openapi` writes it to docs/openapi.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shadowtree.web.parameters import Parameter
from shadowtree.web.routes import ROUTES, Route
from tests.web import schemas

FILE = Path(__file__).parents[2] / "docs" / "openapi.json"

Json = dict[str, Any]  # Any: JSON

_VERSION = "1"
"""Of the interface: it changes when a client would have to."""
_ABOUT = """\
What `shadowtree ui` serves on 127.0.0.1. Send the token with each request as `Authorization: Bearer TOKEN`. \
Plan a change first (`dry_run`), then do it with the plan's `id` as `expect`. If the plan is out of date by \
then, nothing is changed, and you get the new one. Names that are not UTF-8 are surrogate escapes in JSON, \
and percent-encoded bytes in an address."""
_REFUSALS = {
    "400": "A parameter is missing or wrong",
    "401": "The token is missing or wrong",
    "403": "Another web page sent it, or the server was started with --read-only",
    "404": "There is no such message, branch, tree or file",
    "421": "The Host header names another server",
    "500": "The store is damaged or failed",
    "503": "Another process holds the store's lock",
}
_REFUSED_CHANGES = {
    "409": "The plan is out of date (`PlanOutdated`, with the new one as `plan`), or files are in conflict",
    "413": "The body is too large",
    "415": "The body is not JSON",
    "428": "Neither `dry_run` nor `expect` was given",
    "507": "The disk is full",
}
_NAMES = {
    id(schema): name.title() for name, schema in vars(schemas).items() if name[0].isupper() and name.isupper()
}
"""What each schema of a whole answer is called."""


def describe_routes() -> Json:
    """Return the document."""
    paths = {route.path: {route.method.lower(): _describe_route(route)} for route in ROUTES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "shadowtree", "version": _VERSION, "description": _ABOUT},
        "servers": [{"url": "http://127.0.0.1:{port}", "variables": {"port": {"default": "8765"}}}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                status: {"description": why, "content": _show_schema(schemas.ERROR)}
                for status, why in sorted({**_REFUSALS, **_REFUSED_CHANGES}.items())
            },
            "schemas": {_NAMES[id(schema)]: schema for schema in _list_schemas()},
        },
    }


def _describe_route(route: Route) -> Json:
    document: Json = {"operationId": route.path.rpartition("/")[2], "summary": route.about}
    if route.method == "GET":
        document["parameters"] = [_describe_parameter(each) for each in route.parameters]
    else:
        document["requestBody"] = {"required": True, "content": {"application/json": _describe_body(route)}}
    refusals = _REFUSALS | (_REFUSED_CHANGES if route.method == "POST" else {})
    document["responses"] = {
        "200": {"description": "Done", "content": _show_schema(schemas.RETURNS[route.path], route.kind)},
        **{status: {"$ref": f"#/components/responses/{status}"} for status in sorted(refusals)},
    }
    return document


def _list_schemas() -> list[schemas.Schema]:
    """List what whole answers look like, each once."""
    answers = [schema for schema in schemas.RETURNS.values() if "properties" in schema]
    return list({id(schema): schema for schema in (*answers, schemas.ERROR)}.values())


def _show_schema(schema: schemas.Schema, kind: str = "application/json") -> Json:
    named = {"$ref": f"#/components/schemas/{_NAMES[id(schema)]}"} if "properties" in schema else schema
    return {kind: {"schema": named}}


def _describe_parameter(parameter: Parameter) -> Json:
    document: Json = {"name": parameter.name, "in": "query", "description": parameter.about}
    if parameter.is_required:
        document["required"] = True
    return {**document, "schema": parameter.kind}


def _describe_body(route: Route) -> Json:
    properties = {each.name: {**_allow_null(each), "description": each.about} for each in route.parameters}
    required = [each.name for each in route.parameters if each.is_required]
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"schema": {**schema, "required": required} if required else schema}


def _allow_null(parameter: Parameter) -> Json:
    if not parameter.is_nullable:
        return {**parameter.kind}
    return {"anyOf": [parameter.kind, {"type": "null"}]}


if __name__ == "__main__":
    FILE.write_text(json.dumps(describe_routes(), indent=2) + "\n", "utf-8")
