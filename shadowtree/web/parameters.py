"""The parameters of routes: their types, and how they are read from a query or a body."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

Given = dict[str, Any]  # Any: of the parameters' own types

TEXT: Mapping[str, Any] = {"type": "string"}  # Any: a JSON schema, as in the lines below
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}
FLAG: Mapping[str, Any] = {"type": "boolean"}
NUMBER: Mapping[str, Any] = {"type": "integer", "minimum": 0}
COUNT: Mapping[str, Any] = {"type": "integer", "minimum": 1}
_CHOICE: Mapping[str, Any] = {"type": "string", "enum": ["abort", "merge", "keep", "overwrite"]}
CHOICES: Mapping[str, Any] = {"oneOf": [_CHOICE, {"type": "object", "additionalProperties": _CHOICE}]}
_FLAGS = {"1": True, "true": True, "0": False, "false": False}
_MOST_PARAMETERS = 1000


@frozen
class Parameter:
    """One parameter of a route."""

    name: str
    kind: Mapping[str, Any]  # Any: a JSON schema
    about: str
    argument: str | None = None
    """The library's name for it, if that differs."""
    is_required: bool = False
    is_nullable: bool = False
    """In a body, null is a value; for other parameters, it is the same as leaving them out."""


def read_query(query: str, parameters: tuple[Parameter, ...]) -> Given:
    """Read the query of an address; bytes that are not UTF-8 become surrogate escapes."""
    known = {parameter.name: parameter for parameter in parameters}
    try:
        pairs = parse_qsl(
            query,
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError as error:
        raise InvalidInput("the address has too many parameters") from error
    given: Given = {}
    for name, value in pairs:
        parameter = _find(known, name)
        if parameter.kind is TEXTS:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise InvalidInput(f"{name!r} is given twice")
        else:
            given[name] = _read_text(parameter, value)
    return _finish(given, parameters)


def read_body(content: bytes, parameters: tuple[Parameter, ...]) -> Given:
    """Read the JSON object that is the body of a request."""
    known = {parameter.name: parameter for parameter in parameters}
    try:
        body = json.loads(content or b"{}", object_pairs_hook=_refuse_doubles)
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is not JSON") from error
    if not isinstance(body, dict):
        raise InvalidInput("the body must be a JSON object")
    given: Given = {}
    for name, value in body.items():
        parameter = _find(known, name)
        if value is None and not parameter.is_nullable:
            continue
        if value is not None and not _fits(value, parameter.kind):
            raise InvalidInput(f"{name!r} must be {describe_kind(parameter.kind)}")
        given[name] = value
    return _finish(given, parameters)


def describe_kind(kind: Mapping[str, Any]) -> str:  # Any: a JSON schema
    """Describe the type of a parameter in words."""
    if kind is CHOICES:
        return "abort, merge, keep or overwrite, or an object with one of them for each path"
    words = {"string": "text", "array": "a list of texts", "boolean": "true or false"}
    return words.get(kind["type"], "a whole number")


def _find(known: Mapping[str, Parameter], name: str) -> Parameter:
    if name not in known:
        raise InvalidInput(f"there is no parameter {name!r} here")
    return known[name]


def _read_text(parameter: Parameter, value: str) -> object:
    kind = parameter.kind["type"]
    if kind == "boolean" and value in _FLAGS:
        return _FLAGS[value]
    if kind == "integer" and value.isascii() and value.isdigit() and len(value) <= 15:
        return int(value)
    if kind != "string":
        raise InvalidInput(f"{parameter.name!r} must be {describe_kind(parameter.kind)}")
    return value


def _fits(value: object, kind: Mapping[str, Any]) -> bool:  # Any: a JSON schema
    if kind is CHOICES:
        choices = value.values() if isinstance(value, dict) else [value]
        return all(isinstance(choice, str) for choice in choices)
    if kind is TEXTS:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    kinds = {"string": str, "boolean": bool, "integer": int}
    return isinstance(value, kinds[kind["type"]]) and (kind is FLAG or not isinstance(value, bool))


def _finish(given: Given, parameters: tuple[Parameter, ...]) -> Given:
    """Check that required parameters are given, and rename all as the library names them."""
    for parameter in parameters:
        if parameter.is_required and parameter.name not in given:
            raise InvalidInput(f"{parameter.name!r} is missing")
    names = {parameter.name: parameter.argument or parameter.name for parameter in parameters}
    return {names[name]: value for name, value in given.items()}


def _refuse_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidInput("a key of the body is given twice")
    return found
