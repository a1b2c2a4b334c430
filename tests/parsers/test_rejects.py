"""Excerpts of rejected lines show their shape and nothing that was said in them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.rejects import EXCERPT_BYTES, masked

FIELDS = frozenset({"model", "prompt_tokens", "messages"})


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            '{"model": "gpt-5", "prompt_tokens": -12, "x": 7}',
            '{"model": "<5 chars>", "prompt_tokens": -12, "<1 chars>": 9}',
        ),
        (
            '{"prompt_tokens": 12.5, "messages": [true, null]',
            '{"prompt_tokens": 12.5, "messages": [true, null]',
        ),
        ('{"messages": "never closed sk-1', '{"messages": "<17 chars>"'),
        ('{"model": "a \\" b"}', '{"model": "<6 chars>"}'),
        ("16.11.2023 18:17,12.5,many", "99.99.9999 99:99,99.9,<4 chars>"),
        ("Authorization: Bearer abc.def-123", "<13 chars>: <6 chars> <11 chars>"),
        ("ERROR user=alice@example.org", "ERROR <4 chars>=<17 chars>"),
        ("пароль 密码", "<6 chars> <2 chars>"),
        ("a\x1b[31mred\x00\u202eevil\u2028", "<1 chars> [<6 chars> <5 chars> "),
        ("", ""),
    ],
)
def test_shapes(line, shown):
    assert masked(line, FIELDS) == shown


SECRETS = [
    "sk-proj-Abc123def456",
    "Bearer",
    "eyJhbGciOi",
    "alice",
    "example",
    "hunter2",
    "AKIAIOSFODNN7EXAMPLE",
    "geheim",
    "秘密の言葉",
    "4111",
    "passphrase",
]
FRAMES = [
    '{{"model": "{0}", "messages": [{{"content": "{1} {2}"}}]}}',
    '{{"{0}": "{1}", "k": {2}}}',
    '{{"model": "{0}", "messages": "{1} and \\"{2}\\": yes',
    '{0}", "card": {1}, "{2}": "',
    "{0} {1}={2}",
    '"{0}":"{1}":"{2}"',
    "https://{0}:{1}@host/{2}?key={0}",
    "{0}\\{1}\\\\{2}",
    '{{"a": "\\u00e9{0}", b: \'{1}\', "c": "{2}\\',
    "2026-01-01 {0};{1}|{2}",
    "key={0}+/{1}==,{2}@{0}.{1}",
    "\ufeff{0}\u00a0{1}\u2003{2}",
]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FRAMES), st.lists(st.sampled_from(SECRETS), min_size=3, max_size=3), st.integers(0, 60)
)
def test_no_secret_survives_wherever_it_stands_and_wherever_the_line_is_cut(frame, words, cut):
    line = frame.format(*words)
    for text in (line, line[cut:], line[: len(line) - cut], line * 50):
        excerpt = masked(text, FIELDS)
        for secret in SECRETS:
            assert secret not in excerpt


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400))
def test_of_any_text_only_punctuation_nines_and_lengths_are_left(text):
    excerpt = masked(text)
    left = re.sub(r"<\d+ chars>|true|false|null|NaN|INFO|WARNING|ERROR|DEBUG", "", excerpt)
    assert re.fullmatch(r'[\s,;:|{}\[\]()=+/*<>"9.-]*', left), left
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u202e]", excerpt)


@settings(max_examples=20, deadline=None)
@given(st.text(st.sampled_from('a1é,: "\\{'), max_size=30), st.integers(1, 4000))
def test_an_excerpt_is_at_most_2_kb(piece, times):
    assert len(masked(piece * times).encode()) <= EXCERPT_BYTES


def test_a_huge_line_of_quotes_is_masked_in_no_time():
    assert masked('"\\' * 3_000_000).startswith('"<')
