"""What is looked for in texts once a content is purged, and what is left of them."""

from __future__ import annotations

import pytest

from shadowtree.redaction import LARGEST, Secrets, find_secrets, redact, redact_json, redact_role


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (b"API_KEY='sk-1234567'\n", {"API_KEY='sk-1234567'", "sk-1234567"}),
        (b"  token: abcd1234,\r\n", {"token: abcd1234,", "abcd1234"}),
        (b"a-key-alone", {"a-key-alone"}),
        (b"url=https://h:pass@x/\n", {"url=https://h:pass@x/", "https://h:pass@x/", "//h:pass@x/"}),
        (b"short=1\n----------\n", set()),
        (b"aaaaaaaaaaaa\n========\n\n", set()),
        (b"binary\0KEY=12345678", None),
        (b"x" * LARGEST + b"KEY=12345678", None),
        ("schlüssel=größer12\n".encode(), {"schlüssel=größer12", "größer12"}),
    ],
    ids=["quoted", "colon", "whole", "address", "short", "few characters", "binary", "large", "letters"],
)
def test_lines_and_values_are_looked_for(content: bytes, secrets: set[str] | None) -> None:
    assert find_secrets(content) == secrets


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        ('{"user": "bob", "token": "sk-SECRETJSON987"}', "sk-SECRETJSON987"),
        ('{"user": "bob", "password": "correct horse"}', "correct horse"),
        ('{"a":1,"key":"wJalrXUtnFEMI/K7MDENG/bPxRfiCY"}', "wJalrXUtnFEMI/K7MDENG/bPxRfiCY"),
        ("KEY=sk-SECRETCOMM123 # prod", "sk-SECRETCOMM123"),
        ("KEY = 'only-letters' # prod", "only-letters"),
        ("export DB=postgres://bob:SECRETPGPASS77@db/x", "SECRETPGPASS77"),
        ("see https://bob:pass-word@host/x", "pass-word"),
        ("login bob hunter2hunter", "hunter2hunter"),
        ("bob,tOkenOfBob,1", "tOkenOfBob"),
        ("[correct!horse]", "correct!horse"),
        ("it is qwertyuiopasdfghjklzxcv.", "qwertyuiopasdfghjklzxcv"),
    ],
)
def test_a_secret_is_found_wherever_it_stands_in_a_line(content: str, secret: str) -> None:
    secrets = find_secrets(content.encode())

    assert secrets is not None
    assert redact(f"use {secret}, please", Secrets(secrets)) == "use [purged], please"


@pytest.mark.parametrize(
    "content",
    ["some words without anything", "export DATABASE_PASSWORD", "Configuration of all."],
)
def test_words_are_let_stand(content: str) -> None:
    secrets = find_secrets(content.encode())

    assert secrets is not None
    for word in content.split():
        assert redact(word, Secrets(secrets)) == word


def test_a_role_stays_unless_it_is_hardly_a_word() -> None:
    secrets = Secrets(find_secrets(b"role: assistant\nkey: 1234abcd5678") or ())

    assert redact("assistant", secrets) == "[purged]"
    assert redact_role("assistant", secrets) == "assistant"
    assert redact_role("1234abcd5678", secrets) == "[purged]"


def test_many_secrets_in_many_texts_cost_what_the_texts_cost() -> None:
    secrets = Secrets(f"{number:08}-secret" for number in range(200_000))
    texts = [f"this is text {number:08}, in which nothing is said" for number in range(2_000)]

    assert [redact(text, secrets) for text in texts] == texts


def test_the_longest_goes_first() -> None:
    secrets = Secrets({"12345abc", "KEY=12345abc"})

    assert redact("use KEY=12345abc or 12345abc", secrets) == "use [purged] or [purged]"


def test_strings_in_json_are_found_however_they_are_escaped() -> None:
    document = '{"a": ["p\\u00e4ss\\"word1"], "n": 1.50, "p\\u00e4ss\\"word1": null}'

    assert redact_json(document, Secrets({'päss"word1'})) == '{"a": ["[purged]"], "n": 1.5, "[purged]": null}'
    assert redact_json(document, Secrets({"else-where"})) == document


def test_a_number_in_json_is_found_too() -> None:
    assert (
        redact_json('{"pin": 12345678, "is": true}', Secrets({"12345678"}))
        == '{"pin": "[purged]", "is": true}'
    )
