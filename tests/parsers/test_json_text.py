"""Text that JSON can name and UTF-8 can't hold."""

from __future__ import annotations

import json

import pytest

from parsers import containers
from parsers.json_text import decoded


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "x\ud800y"}', {"a": "x?y"}),
        (r'{"\uDFFF": 1}', {"?": 1}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (r'["\\ud800", 1.5, null]', [r"\ud800", 1.5, None]),
    ],
)
def test_halves_of_surrogate_pairs_are_replaced(text, value):
    assert decoded(text) == value
    json.dumps(decoded(text), ensure_ascii=False).encode()


def test_a_containers_line_with_half_a_pair_can_be_looked_at():
    line = json.dumps({"log": "INFO \ud800 up\n", "stream": "stdout", "time": "2026-01-01T00:00:00Z"})
    containers.bare(line).encode()
