"""What the routes return, as JSON schemas: real answers are compared with them, and OpenAPI shows them."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]  # Any: a JSON schema

TEXT: Schema = {"type": "string"}
BYTES: Schema = {"type": "string", "format": "binary"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}
TIME: Schema = {"type": "string", "format": "date-time"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


_MAYBE_TEXT = _or_null(TEXT)
_TEXTS = _list(TEXT)
_LEFT_OUT = _object({"path": TEXT, "reason": TEXT})
_CHANGED = _object({"path": TEXT, "status": _one_of("added", "modified", "deleted", "type")})
_STATE = _one_of("open", "active", "undone", "archived")
_BRANCH_STATE = _one_of("active", "archived")
_TURN = _object({"turn": NUMBER, "messages": _TEXTS, "text": TEXT})
_HUNK = _object({"line": NUMBER, "ours": TEXT, "base": TEXT, "theirs": TEXT})
_CHOICES = _list(_one_of("merge", "keep", "overwrite"))

STATE = _object(
    {
        "version": TEXT,
        "read_only": FLAG,
        "worktree": TEXT,
        "store": TEXT,
        "session": TEXT,
        "number": NUMBER,
        "head": _MAYBE_TEXT,
        "open": _MAYBE_TEXT,
        "tree": _MAYBE_TEXT,
        "turn": NUMBER,
        "turns": NUMBER,
        "undone": _list(_TURN),
        "branches": _list(
            _object(
                {
                    "name": TEXT,
                    "label": TEXT,
                    "state": _BRANCH_STATE,
                    "time": TIME,
                    "fork": _MAYBE_TEXT,
                    "files": NUMBER,
                    "turns": _list(_TURN),
                }
            )
        ),
    }
)
SESSIONS = _object(
    {
        "sessions": _list(
            _object(
                {
                    "id": TEXT,
                    "messages": NUMBER,
                    "head": _MAYBE_TEXT,
                    "time": TIME,
                    "agent": _MAYBE_TEXT,
                    "open": _MAYBE_TEXT,
                }
            )
        )
    }
)
TIMELINE = _object(
    {
        "session": TEXT,
        "number": NUMBER,
        "total": NUMBER,
        "head": _MAYBE_TEXT,
        "open": _MAYBE_TEXT,
        "undone": _TEXTS,
        "rows": _list(
            _object(
                {
                    "id": TEXT,
                    "number": NUMBER,
                    "turn": NUMBER,
                    "role": _MAYBE_TEXT,
                    "agent": _MAYBE_TEXT,
                    "text": TEXT,
                    "time": TIME,
                    "files": NUMBER,
                    "steps": NUMBER,
                    "unprotected": NUMBER,
                    "state": _STATE,
                    "branch": _MAYBE_TEXT,
                    "parent": _MAYBE_TEXT,
                    "marks": _list(
                        _one_of("inferred", "burst", "edited", "out", "pinned", "partly_reverted")
                    ),
                }
            )
        ),
    }
)
_FILE = {
    "path": TEXT,
    "status": _one_of("added", "modified", "deleted", "type", "renamed"),
    "additions": NUMBER,
    "deletions": NUMBER,
    "binary": FLAG,
    "too_large": FLAG,
    "image": FLAG,
}
MESSAGE = _object(
    {
        "message": _object(
            {
                "id": TEXT,
                "number": NUMBER,
                "turn": NUMBER,
                "session": TEXT,
                "role": _MAYBE_TEXT,
                "text": TEXT,
                "time": TIME,
                "before": TEXT,
                "after": _MAYBE_TEXT,
                "files": NUMBER,
                "state": _STATE,
                "branch": _MAYBE_TEXT,
                "inferred": FLAG,
                "meta": _or_null(ANY_OBJECT),
                "burst": FLAG,
                "parent": _MAYBE_TEXT,
                "out": FLAG,
                "pinned": FLAG,
                "partly_reverted": FLAG,
                "unprotected": _TEXTS,
                "git_head": _MAYBE_TEXT,
                "skipped": _list(_LEFT_OUT),
            }
        ),
        "steps": _list(
            _object(
                {
                    "message": TEXT,
                    "step": TEXT,
                    "before": TEXT,
                    "time": TIME,
                    "meta": _or_null(ANY_OBJECT),
                },
                after=TEXT,
                end_time=TIME,
                inferred=FLAG,
                files=_list(_CHANGED),
                warnings=_TEXTS,
            )
        ),
        "files": _list(_object(_FILE, renamed_from=TEXT)),
        "additions": NUMBER,
        "deletions": NUMBER,
    }
)
DIFF = _object({"files": _list(_object({**_FILE, "patch": TEXT, "cut": FLAG}, renamed_from=TEXT))})
BRANCHES = _object(
    {
        "branches": _list(
            _object(
                {
                    "name": TEXT,
                    "fork": _MAYBE_TEXT,
                    "messages": _TEXTS,
                    "time": TIME,
                    "label": TEXT,
                    "state": _BRANCH_STATE,
                    "files": NUMBER,
                }
            )
        )
    }
)
STATUS = _object(
    {
        "worktree": TEXT,
        "store": TEXT,
        "session": TEXT,
        "head": _MAYBE_TEXT,
        "open": _MAYBE_TEXT,
        "undone": _TEXTS,
        "changed": NUMBER,
        "ignored": NUMBER,
        "watching": FLAG,
        "skipped": _list(_LEFT_OUT),
        "outside": _list(_CHANGED),
        "unprotected": _TEXTS,
        "warnings": _TEXTS,
    }
)
UNPROTECTED = _object({"unprotected": _list(_LEFT_OUT)})
STATS = _object(
    {
        "worktree": TEXT,
        "store": TEXT,
        "store_bytes": NUMBER,
        "budget_bytes": _or_null(NUMBER),
        "messages": NUMBER,
        "sessions": NUMBER,
        "trees": NUMBER,
        "pins": NUMBER,
        "packs": NUMBER,
        "object_bytes": NUMBER,
        "timeline_bytes": NUMBER,
        "cache_bytes": NUMBER,
        "free_bytes": NUMBER,
        "largest": _list(_object({"path": TEXT, "bytes": NUMBER, "versions": NUMBER})),
        "oldest": _or_null(TIME),
        "newest": _or_null(TIME),
    }
)
_PROBLEM = _object(
    {
        "kind": TEXT,
        "what": TEXT,
        "message": TEXT,
        "messages": _list(_object({"session": TEXT, "id": TEXT})),
    }
)
CHECK = _object(
    {
        "ok": FLAG,
        "problems": _list(_PROBLEM),
        "harmless": _list(_PROBLEM),
        "objects": NUMBER,
        "trees": NUMBER,
        "repaired": _TEXTS,
        "quarantine": _MAYBE_TEXT,
        "dry_run": FLAG,
    }
)
_PLANNED_DIFF = _object(
    {
        "path": TEXT,
        "status": _one_of("added", "modified", "deleted", "type"),
        "additions": NUMBER,
        "deletions": NUMBER,
        "binary": FLAG,
        "patch": TEXT,
    },
    renamed_from=TEXT,
)
OUTCOME = _object(
    {
        "act": _one_of("undo", "redo", "revert", "unrevert", "switch", "restore"),
        "id": TEXT,
        "dry_run": FLAG,
        "complete": FLAG,
        "mode": _one_of("back", "only"),
        "messages": _TEXTS,
        "redone": _TEXTS,
        "head": _MAYBE_TEXT,
        "undone": _TEXTS,
        "files": _list(
            _object(
                {
                    "path": TEXT,
                    "action": _one_of("create", "restore", "merge", "delete", "keep", "conflict", "skip"),
                    "own": FLAG,
                    "reason": TEXT,
                    "choices": _CHOICES,
                    "hunks": _list(_HUNK),
                }
            )
        ),
        "restored": _TEXTS,
        "created": _TEXTS,
        "deleted": _TEXTS,
        "merged": _TEXTS,
        "marked": _TEXTS,
        "kept": _TEXTS,
        "edited": _TEXTS,
        "uncertain": _TEXTS,
        "unprotected": _TEXTS,
        "conflicts": _list(
            _object({"path": TEXT, "reason": TEXT, "advice": TEXT}, choices=_CHOICES, hunks=_list(_HUNK))
        ),
        "skipped": _list(_LEFT_OUT),
        "before": TEXT,
        "after": TEXT,
        "notes": _TEXTS,
        "back": _MAYBE_TEXT,
        "back_call": _or_null(
            _object({"route": TEXT, "body": _object({"session": TEXT, "undo": FLAG})}),
        ),
    },
    turns=NUMBER,
    reverses=TEXT,
    diff=_list(_PLANNED_DIFF),
)
PROTECTED = _object(
    {"protected": _list(_object({"path": TEXT, "rule": _MAYBE_TEXT, "exists": FLAG, "dry_run": FLAG}))}
)
ERROR: Schema = {
    "type": "object",
    "properties": {"error": TEXT, "message": TEXT, "plan": {"type": "object"}},
    "required": ["error", "message"],
    "additionalProperties": True,
}
RETURNS = {
    "/api/state": STATE,
    "/api/sessions": SESSIONS,
    "/api/timeline": TIMELINE,
    "/api/message": MESSAGE,
    "/api/diff": DIFF,
    "/api/file": BYTES,
    "/api/branches": BRANCHES,
    "/api/status": STATUS,
    "/api/unprotected": UNPROTECTED,
    "/api/stats": STATS,
    "/api/verify": CHECK,
    "/api/events": TEXT,
    **{f"/api/{act}": OUTCOME for act in ("undo", "redo", "revert", "unrevert", "switch", "restore")},
    "/api/protect": PROTECTED,
}
"""What each route returns."""

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
