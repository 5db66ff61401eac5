"""JSON edited as text: what is added can be removed again, and nothing else moves."""

from __future__ import annotations

import json

import pytest

from shadowtree.agents import json_text
from shadowtree.agents.json_text import BadJson

ITEM = {"hooks": [{"type": "command", "command": "x"}]}
TEXTS = {
    "an empty object": "{}",
    "an empty object with a line break": "{}\n",
    "two blanks": '{\n  "a": 1\n}\n',
    "three blanks and a list": '{\n   "hooks": {\n      "Stop": [\n         {"a": []}\n      ]\n   }\n}',
    "tabs and CRLF": '{\r\n\t"a": [1, 2],\r\n\t"b": {"c": null}\r\n}\r\n',
    "one line": '{"a": 1, "hooks": {"Stop": [{"x": 1.5e3}]}}\n',
    "one line without blanks": '{"a":1,"hooks":{"Stop":[{"x":true}]}}',
    "keys after the place": '{\n "hooks": {\n  "Stop": [\n   1\n  ],\n  "O": []\n },\n "z": "é\\u00e9"\n}',
    "crooked lines": '{ "a":1,\n      "hooks" : { "Stop":[ 1,\n2 ] } }',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_is_added_is_read_and_removing_it_gives_the_same_text(text: str) -> None:
    added = json_text.add(text, ("hooks", "Stop"), ITEM)
    root = json_text.read(added)
    items = root.get("hooks", "Stop")
    assert items is not None
    removed = json_text.remove(added, items, items.items()[-1])
    for keys in (("hooks", "Stop"), ("hooks",)):
        root = json_text.read(removed)
        value, parent = root.get(*keys), root.get(*keys[:-1])
        assert value is not None
        assert parent is not None
        if not value.content:
            removed = json_text.remove(removed, parent, value)

    expected = json.loads(text)
    expected.setdefault("hooks", {}).setdefault("Stop", []).append(ITEM)
    assert json.loads(added) == expected
    assert ("\r\n" in added) == ("\r\n" in text)
    assert removed == text


def test_what_is_added_is_written_like_the_rest() -> None:
    assert json_text.add('{\n\t"a": 1\n}\n', ("b", "c"), 2) == (
        '{\n\t"a": 1,\n\t"b": {\n\t\t"c": [\n\t\t\t2\n\t\t]\n\t}\n}\n'
    )
    assert json_text.add('{"a":1}', ("b",), {"c": 2}) == '{"a":1,"b":[{"c":2}]}'


def test_a_value_is_replaced_and_the_first_one_removed() -> None:
    text = '{"a": [ 1, 22 , 3]}'
    items = json_text.read(text).get("a")
    assert items is not None

    assert json_text.replace(text, items.items()[1], "x") == '{"a": [ 1, "x" , 3]}'
    assert json_text.remove(text, items, items.items()[0]) == '{"a": [ 22 , 3]}'


BAD = {
    "": "line 1: it ends too early",
    "{": "line 1: it ends too early",
    '{"a": 1,}': "line 1: a trailing comma is not strict JSON",
    '{\n  // mine\n  "a": 1\n}': "line 2: comments are not strict JSON",
    '{"a": 1} x': "line 1: unexpected 'x'",
    "{'a': 1}": 'line 1: unexpected "\'"',
    '{"a": 1, "a": 2}': "line 1: the key 'a' is there twice",
    '{"a": 01}': "line 1: unexpected '1'",
    '{"a": NaN}': "line 1: unexpected 'N'",
    '{"a": "\n"}': "line 1: unexpected '\"'",
    "[" * 500: "line 1: it is nested too deeply",
}


@pytest.mark.parametrize(("text", "sentence"), BAD.items(), ids=[repr(text[:20]) for text in BAD])
def test_what_is_no_strict_json_is_refused_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(BadJson) as raised:
        json_text.read(text)

    assert str(raised.value) == sentence
