"""What looks like a credential gives way in every kept text, and nothing else does."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.credentials import SIGNS, has_credential, redacted
from parsers.errors import UnreadableSourceError
from parsers.hashing import PromptHasher
from parsers.records import REQUESTS
from parsers.withheld import LONGEST_NAME, WITHHELD, without_secrets

DIGEST = PromptHasher(b"a key for tests only").digest


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sk-ant-api03-AbC_d-1234", "..."),
        ("team sk-proj-abc_DEF012.ghi x", "team ... x"),
        ("sk-1234", "..."),
        ("AKIAIOSFODNN7EXAMPLE", "..."),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "..."),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-DEF_1", "..."),
        ("openai|hf_abcDEF1234567890|gpt", "openai|...|gpt"),
        ("Bearer abc.def", "Bearer ..."),
        ("basic dXNlcjpwYXNz", "basic ..."),
        ("password=hunter2!", "password=..."),
        ("X-Api-Key: abcd1234", "X-Api-Key: ..."),
        ("/v1/x?key=abcdef&y=1", "/v1/x?..."),
        ("eyjhbgcioijiuzi1nij9.eyjzdwiioiixin0.abc", "..."),
        ("https://u:p/a?s#s@h.example/v1?x=1#f", "https://...@h.example/v1?..."),
        ("mysql:/me:pw@db/x", "mysql:/...@db/x"),
        ("data:image/png;base64,iVBORw0KGgo=", "..."),
        ("-----BEGIN PRIVATE KEY-----\nabc\n", "..."),
    ],
)
def test_credentials_give_way(text, shown):
    assert redacted(text, lambda _: "...") == shown


@pytest.mark.parametrize(
    "name",
    [
        "sk-hynix-analytics",
        "sk-...9fQA",
        "Basic Subscription",
        "alice@example.org",
        "asia-northeast1",
        "litellm_proxy_master_key",
        "token budget",
        "vllm/vllm-openai:v0.11@sha256:abcdef",
        "https://aiplatform.example/v1/p/claude-opus-4@20250514:predict",
        "http://10.0.0.7:8000",
        "arn:aws:bedrock:us-east-1:111111111111:application-inference-profile/abc",
        "User-Agent: python",
        "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "88dc28d0f030c55ed4ab77ed8faf098196cb1c05df778539800c9f1243fe6b4b",
    ],
)
def test_names_stay(name):
    assert not has_credential(name)
    assert redacted(name, lambda _: "...") == name


def rows(**columns) -> pl.DataFrame:
    return REQUESTS.conform(pl.DataFrame({"flags": [["old"]] * len(next(iter(columns.values()))), **columns}))


def test_rows_tell_that_something_was_withheld_and_stay_apart():
    frame = without_secrets(
        rows(
            user=["sk-AAAAAAAA1", "alice", "sk-AAAAAAAA1", "sk-BBBBBBBB1", None],
            tags=[["a", "Bearer abcde"], [], ["b"], None, ["a", None]],
            error_kind=["RateLimitError", "you said: my diagnosis is", None, None, "x" * (LONGEST_NAME + 1)],
        ),
        REQUESTS,
        DIGEST,
    )
    users = frame["user"].to_list()
    assert users == [f"secret-{DIGEST('sk-AAAAAAAA1')[:16]}", "alice", users[0], users[3], None]
    assert users[3] not in (users[0], "sk-BBBBBBBB1")
    assert frame["tags"].to_list() == [
        ["a", f"Bearer secret-{DIGEST('abcde')[:16]}"],
        [],
        ["b"],
        None,
        ["a", None],
    ]
    kinds = frame["error_kind"].to_list()
    assert kinds[0] == "RateLimitError"
    assert all(kind.startswith("secret-") for kind in (kinds[1], kinds[4]))
    assert [WITHHELD in flags for flags in frame["flags"].to_list()] == [True, True, True, True, True]
    assert all(flags.count(WITHHELD) == 1 and flags[0] == "old" for flags in frame["flags"].to_list())


def test_rows_without_secrets_are_left_as_they_are():
    frame = rows(user=["alice", None], endpoint=["https://api.example.org/v1", None], tags=[["a"], None])
    assert without_secrets(frame, REQUESTS, DIGEST).equals(frame)


PIECES = st.sampled_from(
    [
        *SIGNS,
        *(sign.upper() for sign in SIGNS),
        "sk-",
        "AKIA",
        "eyJ",
        "AQ.",
        "a1B2c3D4e5",
        "://",
        "@",
        "?",
        "=",
        " ",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join))
def test_what_a_rule_finds_has_a_sign(text):
    """Texts without a sign are not looked at: the search for signs must miss nothing. And what is safe once is safe."""
    if has_credential(text):
        assert pl.Series([text]).str.contains_any(SIGNS, ascii_case_insensitive=True).item()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(PIECES | st.text(max_size=6), max_size=8).map("".join),
    st.sampled_from(["sk-", "AKIA", "hf_", "ghp_"]),
)
def test_no_issued_key_survives_between_any_texts(around, prefix):
    key = prefix + "PLANTED0123456789"
    shown = redacted(f"{around} {key} {around}", lambda _: "...")
    assert "PLANTED" not in shown


def test_errors_show_no_password():
    error = UnreadableSourceError("no answer from http://me:pw@h/x?sig=abc", where="mysql:/me:pw@h/x")
    assert str(error) == "mysql:/...@h/x: no answer from http://...@h/x?..."
