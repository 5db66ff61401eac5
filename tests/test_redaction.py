"""What is looked for in texts once a content is purged, and what is left of them."""

from __future__ import annotations

import pytest

from shadowtree.redaction import Said, Secrets, find_secrets, redact, redact_json, redact_name, redact_role


@pytest.mark.parametrize(
    ("content", "secrets"),
    [
        (b"API_KEY='sk-1234567'\n", {"API_KEY='sk-1234567'", "sk-1234567"}),
        (b"  token: abcd1234,\r\n", {"token: abcd1234,", "abcd1234"}),
        (b"a-key-alone", {"a-key-alone"}),
        (b"url=https://h:pass@x/\n", {"url=https://h:pass@x/", "https://h:pass@x/", "//h:pass@x/"}),
        (b"short=1\n----------\n", set()),
        (b"aaaaaaaaaaaa\n========\n\n", set()),
        (b"\1\xff\0binary\0KEY=1234abcd\0", {"KEY=1234abcd", "1234abcd"}),
        ("schlüssel=größer12\n".encode(), {"schlüssel=größer12", "größer12"}),
    ],
    ids=["quoted", "colon", "whole", "address", "short", "few characters", "binary", "letters"],
)
def test_lines_and_values_are_looked_for(content: bytes, secrets: set[str]) -> None:
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

    assert redact(f"use {secret}, please", Secrets(secrets)) == "use [purged], please"


@pytest.mark.parametrize(
    "content",
    ["some words without anything", "export DATABASE_PASSWORD", "Configuration of all."],
)
def test_words_are_let_stand(content: str) -> None:
    secrets = find_secrets(content.encode())

    for word in content.split():
        assert redact(word, Secrets(secrets)) == word


def test_a_role_stays_unless_it_is_hardly_a_word() -> None:
    secrets = Secrets(find_secrets(b"role: assistant\nkey: 1234abcd5678"))

    assert redact("assistant", secrets) == "[purged]"
    assert redact_role("assistant", secrets) == "assistant"
    assert redact_role("1234abcd5678", secrets) == "[purged]"
    assert redact_role("user 1234abcd5678", secrets) == "[purged]"


TOKEN = "ghp_ZZZZZZZZ0123456789"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"2026 a line of a log\n"] * 80_000 + [TOKEN.encode()],
        [b"x" * 30_000] * 5 + [TOKEN.encode()] + [b"y" * 30_000] * 5,
        [b"\n" + b"x" * ((64 << 10) - 10) + TOKEN.encode() + b"y" * 1000],
        [b"x" * ((64 << 10) - 10) + TOKEN.encode() + b"y" * (64 << 10)],
        [b"\0\xff\x80A" + TOKEN.encode() + b"z\0\1"],
        ["\ufeffkey = ".encode("utf-16-le"), TOKEN.encode("utf-16-le")],
        [b"key = " + TOKEN[:9].encode(), TOKEN[9:].encode()],
    ],
    ids=["large", "one line", "cut behind a line", "cut within", "between bytes", "utf-16", "pieces"],
)
def test_what_was_said_is_found_in_a_content_of_any_kind(pieces: list[bytes]) -> None:
    said = Said([f"rotate {TOKEN}, please", "fix the login in src/app.py"])

    said.compare(pieces)

    assert redact(f"rotate {TOKEN}, please", said.secrets()) == "rotate [purged], please"


@pytest.mark.parametrize(
    "text",
    ["key=wJalrXUtn/K7MDENG/bPxRfiCY==", "<wJalrXUtn/K7MDENG/bPxRfiCY==>", "'wJalrXUtn/K7MDENG/bPxRfiCY=='!"],
)
def test_a_token_is_found_whole(text: str) -> None:
    said = Said([text])

    said.compare([b"\0AwJalrXUtn/K7MDENG/bPxRfiCY==z\0"])

    assert redact(text, said.secrets()) == text.replace("wJalrXUtn/K7MDENG/bPxRfiCY==", "[purged]")


def test_words_and_paths_that_a_content_holds_as_well_are_let_stand() -> None:
    text = "document src/app/configuration.py and/or DATABASE_PASSWORD for bob@example.com"
    said = Said([text])

    said.compare([b"\0say " + text.encode() + b" here\0\n", b"more words, " + text.encode() + b" here\n"])

    assert redact(text, said.secrets()) == text


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("use-ghp-zzzzzzzz0123456789-now", "use-purged-now"),
        ("wherever-there-is-a-server-use-ghp-zzzzz", "wherever-there-is-a-server-use-purged"),
        ("wherever-there-is-a-server-use-ghp-zzzzz-2", "wherever-there-is-a-server-use-purged-2"),
        ("use-ghp-zzzzz", "use-ghp-zzzzz"),
        ("use-the-pass-phrase", "use-the-pass-phrase"),
        (f"use {TOKEN} now", "use purged now"),
    ],
    ids=["slug", "cut", "cut with a number", "too short to be cut", "words", "as it is"],
)
def test_slugs_of_secrets_are_found_in_names(name: str, left: str) -> None:
    said = Said([], [name])

    said.compare([b"Use the pass-phrase\nKEY=" + TOKEN.encode()])

    assert redact_name(name, said.secrets(), said.slugs()) == left


def test_what_many_lines_hold_is_compared_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadowtree.redaction._MANY_PARTS", 10)
    said = Said(["the pass phrase is correct horse"])

    said.compare([b"phrase: correct horse\n", *(b"value: of number %d\n" % number for number in range(99))])

    assert redact("it is correct horse", said.secrets()) == "it is [purged]"


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
