"""Compare a document with a JSON schema, as far as ours go."""

from __future__ import annotations

from typing import Any

_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def find_faults(value: Any, schema: Any, at: str = "$") -> list[str]:  # Any: JSON
    """List where a document is not what its schema says."""
    if "anyOf" in schema:
        tried = [find_faults(value, each, at) for each in schema["anyOf"]]
        return [] if [] in tried else tried[0]
    kind = schema["type"]
    is_right: bool = isinstance(value, _KINDS[kind])
    if not is_right or (kind == "integer" and isinstance(value, bool)):
        return [f"{at} is {value!r}, and no {kind}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at} is {value!r}, and none of {schema['enum']}"]
    if kind == "array":
        return [
            fault
            for n, each in enumerate(value)
            for fault in find_faults(each, schema["items"], f"{at}[{n}]")
        ]
    if kind != "object" or "properties" not in schema:
        return []
    known = schema["properties"]
    faults = [f"{at} lacks {name}" for name in schema["required"] if name not in value]
    if not schema["additionalProperties"]:
        faults += [f"{at} has {name}" for name in value if name not in known]
    return faults + [
        fault
        for name, each in value.items()
        if name in known
        for fault in find_faults(each, known[name], f"{at}.{name}")
    ]
