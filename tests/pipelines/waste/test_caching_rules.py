"""The dated table of caching rules: its reading, its order, and what the shipped one says."""

from __future__ import annotations

import datetime as dt

import pytest

from parsers.errors import SiteConfigError
from pipelines.waste.caching_rules import ANY_DAY, default_rules, read_rules, rule_for

DAY = dt.date(2026, 9, 1)
HEAD = (
    "provider,model,minimum_tokens,step_tokens,lifetime_s,scope,write_multiple,activation,routing_key,"
    "longer_lifetime_s,longer_write_multiple,assumed,source,valid_from\n"
)
LAST = "*,*,1024,128,300,account,,automatic,,,,,none,1970-01-01\n"


@pytest.mark.parametrize(
    ("provider", "model", "minimum", "step", "lifetime"),
    [
        ("openai", "gpt-4o", 1024, 128, 300),
        ("openai", "gpt-5.6-mini", 1024, 1, 1800),
        ("azure", "my-deployment", 1024, 128, 300),
        ("anthropic", "claude-opus-4-5-20251101", 4096, 1, 300),
        ("openrouter", "anthropic/claude-opus-4.5", 4096, 1, 300),
        ("anthropic", "claude-opus-4-20250514", 1024, 1, 300),
        ("bedrock", "us.anthropic.claude-3-5-haiku-20241022-v1:0", 2048, 1, 300),
        ("anthropic", "claude-opus-5", 512, 1, 300),
        ("vertex_ai", "gemini-2.5-pro", 2048, 1, 300),
        ("VLLM", "Qwen2", 16, 16, None),
        ("hosted_vllm", "state-spaces/mamba-2.8b", 528, 528, None),
        ("llama.cpp", "gemma-3", 1, 1, None),
        (None, None, 1024, 128, 300),
    ],
)
def test_shipped_rules(provider, model, minimum, step, lifetime):
    rule = rule_for(default_rules(), provider, model, DAY)
    assert (rule.minimum_tokens, rule.step_tokens, rule.lifetime_s) == (minimum, step, lifetime)


def test_before_its_first_day_a_named_provider_caches_nothing_and_the_last_rule_does_not_step_in():
    assert rule_for(default_rules(), "openai", "gpt-4o", dt.date(2023, 11, 16)) is None
    assert rule_for(default_rules(), "someone", "model", dt.date(2023, 11, 16)).assumed


def test_newer_rows_stand_above_and_logs_without_a_clock_take_them():
    rules = read_rules(
        HEAD
        + "p,*,8,8,60,account,1.25,automatic,,,,,a,2026-01-01\np,*,4,4,60,account,,automatic,,,,,b,2025-01-01\n"
        + LAST,
        where="t",
    )
    assert rule_for(rules, "P", "m", dt.date(2025, 12, 31)).minimum_tokens == 4
    assert rule_for(rules, "P", "m", dt.date(2026, 1, 1)).minimum_tokens == 8
    assert rule_for(rules, "P", "m", ANY_DAY).minimum_tokens == 8


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("provider,model\n", "columns are missing"),
        (HEAD + "p,*,8,8,60,account,,automatic,,,,,a,2026-01-01\n", "last rule must be"),
        (HEAD + "p,*,many,8,60,account,,automatic,,,,,a,2026-01-01\n" + LAST, "line 2"),
        (HEAD + "p,*,8,0,60,account,,automatic,,,,,a,2026-01-01\n" + LAST, "step_tokens"),
        (HEAD + "p,*,8,8,60,galaxy,,automatic,,,,,a,2026-01-01\n" + LAST, "account, fleet"),
        (HEAD + "p,*,8,8,60,account,x,automatic,,,,,a,2026-01-01\n" + LAST, "line 2"),
        (HEAD + "p,*,8,8,60,account,,sometimes,,,,,a,2026-01-01\n" + LAST, "automatic, opt_in"),
        (HEAD + "p,*,8,8,60,account,,automatic,,60,,,a,2026-01-01\n" + LAST, "longer_lifetime_s"),
        (HEAD + "p,*,8,8,0,account,,automatic,,,,,a,2026-01-01\n" + LAST, "lifetime_s"),
        (HEAD + "p,*\n" + LAST, "line 2"),
    ],
)
def test_a_wrong_table_is_refused_in_one_line(text, says):
    with pytest.raises(SiteConfigError, match=says) as caught:
        read_rules(text, where="rules.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("provider", "model", "activation", "longer", "multiple"),
    [
        ("anthropic", "claude-sonnet-4-5", "opt_in", 3600, 2),
        ("openai", "gpt-5.1", "automatic", 86400, None),
        ("openai", "gpt-4.1-mini", "automatic", 86400, None),
        ("openai", "gpt-4o", "automatic", None, None),
        ("openai", "gpt-5.6", "automatic", None, None),
        ("groq", "llama-3.3", "automatic", None, None),
        ("bedrock", "amazon.nova-pro-v1:0", "opt_in", None, None),
        ("mistral", "mistral-large", "opt_in", None, None),
        ("vllm", "qwen", "automatic", None, None),
    ],
)
def test_shipped_rules_say_who_must_ask_and_what_longer_lifetime_there_is(
    provider, model, activation, longer, multiple
):
    rule = rule_for(default_rules(), provider, model, DAY)
    assert (rule.activation, rule.longer_lifetime_s, rule.longer_write_multiple) == (
        activation,
        longer,
        multiple,
    )


def test_the_longer_lifetimes_hold_from_the_day_they_were_offered():
    rules = default_rules()
    assert rule_for(rules, "anthropic", "claude-3-5-sonnet", dt.date(2025, 5, 21)).longer_lifetime_s is None
    assert rule_for(rules, "anthropic", "claude-3-5-sonnet", dt.date(2025, 5, 22)).longer_lifetime_s == 3600
    assert rule_for(rules, "openai", "gpt-5", dt.date(2025, 11, 12)).longer_lifetime_s is None


def test_every_figure_that_is_assumed_is_a_column():
    for rule in default_rules():
        names = {part.split(":")[0] for part in (rule.assumed or "").split(";") if part}
        assert names <= {"minimum_tokens", "step_tokens", "lifetime_s"}
        assert rule.source
