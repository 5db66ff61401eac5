"""What is redacted in texts when a line is purged."""

from __future__ import annotations

import pytest

from shadowtree.purge.redact import list_secrets


@pytest.mark.parametrize(
    ("line", "secrets"),
    [
        ("API_KEY='sk-1234567'", {"API_KEY='sk-1234567'", "sk-1234567"}),
        ("  token: abcd1234,\r", {"token: abcd1234,", "abcd1234"}),
        ("a-key-alone", {"a-key-alone"}),
        ("url=https://h:pass@x/", {"url=https://h:pass@x/", "https://h:pass@x/", "//h:pass@x/"}),
        ('{"a":1,"key":"wJalrXUtnFEMI/K7MD"}', {'{"a":1,"key":"wJalrXUtnFEMI/K7MD"}', "wJalrXUtnFEMI/K7MD"}),
        ("KEY = 'only-letters' # prod", {"KEY = 'only-letters' # prod", "only-letters"}),
        ("short=1", set()),
        ("aaaaaaaaaaaa", set()),
        ("schlüssel=größer12", {"schlüssel=größer12", "größer12"}),
    ],
    ids=["quoted", "colon", "whole", "address", "json", "comment", "short", "few characters", "letters"],
)
def test_a_line_and_its_values_are_redacted(line: str, secrets: set[str]) -> None:
    assert secrets <= set(list_secrets(line))
    assert bool(secrets) == bool(set(list_secrets(line)))
