"""The price table: what was compiled, how names are matched, what held on a day, a site's overrides."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from importlib.metadata import version
from importlib.resources import files

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.errors import SiteConfigError
from warehouse import compile_prices
from warehouse.price_names import PROVIDER_ALIASES, is_self_hosted
from warehouse.prices import (
    HIGHEST_USD_PER_TOKEN,
    LOWEST_USD_PER_TOKEN,
    UNIT_PRICES,
    load_price_table,
    read_overrides,
    unit_prices,
)

DAY = dt.date(2026, 11, 20)
TABLE = load_price_table()


def priced(provider, model, *, day=DAY, processing="standard", overrides=None):
    """{(meter, tier): USD per token} of one key, and the sources."""
    keys = pl.DataFrame(
        {"provider": [provider], "model": [model], "day": [day], "processing": [processing]},
        schema_overrides={"provider": pl.String},
    )
    frame = unit_prices(keys, overrides=overrides)
    assert frame.schema == UNIT_PRICES
    values = {
        (row["meter"], row["context_tier_start"]): row["usd_per_token"] for row in frame.iter_rows(named=True)
    }
    return values, frame["price_source"].to_list()


def test_committed_table_is_what_the_recorded_version_compiles_to():
    recorded, _, released = TABLE.snapshot.removeprefix("genai-prices ").partition(", released ")
    if version("genai-prices") != recorded:
        pytest.skip(
            f"genai-prices {version('genai-prices')} is installed, the table was compiled from {recorded}"
        )
    compiled = compile_prices.compile_package()
    for name, columns, rows in (
        ("prices.csv", compile_prices.PRICE_COLUMNS, compiled.prices),
        ("price_names.csv", compile_prices.NAME_COLUMNS, compiled.names),
    ):
        fresh = compile_prices.render(columns, rows, recorded, dt.date.fromisoformat(released))
        assert (files("warehouse") / "reference" / name).read_text(encoding="utf-8") == fresh


def test_every_list_price_is_per_token_and_periods_of_a_price_do_not_overlap():
    prices = TABLE.prices
    per_token = prices["usd_per_token"].cast(pl.Float64)
    outside = (per_token > 0) & ~per_token.is_between(LOWEST_USD_PER_TOKEN, HIGHEST_USD_PER_TOKEN)
    assert prices.filter(outside).is_empty()
    key = ["provider", "model", "processing", "meter", "context_tier_start"]
    ordered = prices.sort(*key, "valid_from", nulls_last=False)
    overlap = pl.col("valid_from").shift(-1).over(key) < pl.col("valid_to").fill_null(dt.date.max)
    assert ordered.filter(overlap).is_empty()


@pytest.mark.parametrize(
    ("provider", "name", "expected"),
    [
        ("openai", "openai/gpt-5-mini", "gpt-5-mini"),
        ("openai", "gpt-5.2-20251211", "gpt-5.2"),
        ("OpenAI", "gpt-4.1-nano-2025-04-14", "gpt-4.1-nano"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("Anthropic", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5"),
        (
            "bedrock",
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "regional.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        (
            None,
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            "regional.anthropic.claude-sonnet-4-5-20250929-v1:0",
        ),
        ("vertex_ai", "vertex_ai/claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("vertex_ai-language-models", "gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini", "gemini/gemini-2.0-flash-001", "gemini-2.0-flash"),
        ("gcp.gemini", "models/gemini-2.5-pro", "gemini-2.5-pro"),
        (None, "azure/gpt-4o", "gpt-4o"),
        ("azure", "azure/eu/gpt-4o", "gpt-4o"),
        (None, "text-embedding-3-small", "text-embedding-3-small"),
        ("litellm", "gpt-4o", "gpt-4o"),
        ("openrouter", "openrouter/google/gemini-2.5-flash", "google/gemini-2.5-flash"),
        ("groq", "llama-3.3-70b-versatile", "llama-3.3-70b-versatile"),
        ("openai", "ft:gpt-4o-2024-08-06:org:name:id", "ft:gpt-4o"),
    ],
)
def test_names_as_they_stand_in_logs_are_recognised(provider, name, expected):
    match = TABLE.names.find(provider, name)
    assert match is not None
    assert match.model == expected


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("deepseek", "deepseek-chat-anything"),
        ("anthropic", "claude-sonnet-4-55"),
        ("google", "gemini-3.6-flash-lite"),
        ("openai", "gemma-3-270m"),
        ("openai", "nope"),
        ("acme", "gpt-4o"),
        ("hosted_vllm", "gpt-4o"),
        ("openai", "hosted_vllm/gpt-4o"),
        ("ollama", "llama3.2"),
        (None, "openai/gpt-oss-120b"),
        (None, "Qwen/Qwen2.5-VL-72B-Instruct"),
        (None, "meta-llama/Llama-3.1-8B-Instruct"),
        (None, ""),
    ],
)
def test_names_that_are_not_certain_have_no_price(provider, name):
    assert TABLE.names.find(provider, name) is None
    assert priced(provider, name) == ({}, [])


def test_no_known_name_is_priced_with_something_appended():
    wrong = [
        (provider, text)
        for provider, text in TABLE.names.exact
        if provider in PROVIDER_ALIASES and TABLE.names.find(provider, f"{text}-anything") is not None
    ]
    assert wrong == []


def test_engines_of_ones_own_are_told_from_vendors():
    assert is_self_hosted("hosted_vllm", "x")
    assert is_self_hosted(None, "ollama/llama3")
    assert not is_self_hosted("openai", "openai/gpt-4o")


@settings(max_examples=30, deadline=None)
@given(
    entry=st.sampled_from(
        sorted(
            (p, t) for p, t in TABLE.names.exact if p in ("anthropic", "openai", "google", "mistral", "aws")
        )
    ),
    day=st.dates(dt.date(2025, 1, 1), dt.date(2026, 12, 31)),
    processing=st.sampled_from(["standard", "batch", "flex"]),
    read=st.integers(0, 300_000),
    write=st.integers(0, 1000),
    write_1h=st.integers(0, 1000),
    rest=st.integers(0, 1000),
    output=st.integers(0, 1000),
)
def test_cost_equals_the_packages_own_arithmetic(entry, day, processing, read, write, write_1h, rest, output):
    """The table joined gives what genai-prices computes call by call, tiers, dates and variants included."""
    from genai_prices import Usage
    from genai_prices.data import providers

    values, sources = priced(*entry, day=day, processing=processing)
    if not any(meter == "output" for meter, _ in values) or any(
        "hour of the day" in text for text in sources
    ):
        return
    size = read + write + write_1h + rest
    tier = max(start for meter, start in values if meter == "input" and (start == 0 or start < size))
    counts = {
        "input": rest,
        "cache_read": read,
        "cache_write_5m": write,
        "cache_write_1h": write_1h,
        "output": output,
    }
    ours = sum(values[meter, tier] * count for meter, count in counts.items())

    provider = next(p for p in providers if p.id == entry[0])
    model = provider.find_model(entry[1], all_providers=providers)
    usage = Usage(
        input_tokens=size,
        cache_read_tokens=read,
        cache_write_tokens=write + write_1h,
        cache_write_1h_tokens=write_1h,
        output_tokens=output,
    )
    theirs = model.calc_price(
        usage,
        provider,
        genai_request_timestamp=dt.datetime.combine(day, dt.time(12), dt.UTC),
        price_context=compile_prices.CONTEXTS[processing],
    )
    fees = sum(value / 1000 for key, value in vars(theirs.model_price).items() if key == "requests_kcount")
    assert abs(ours - (theirs.total_price - fees)) <= Decimal(size + output) * Decimal("5e-13")


def test_above_the_start_of_a_tier_and_not_at_it():
    values, _ = priced("gemini", "gemini-2.5-pro")
    assert {start for _, start in values} == {0, 200_000}
    assert values["input", 0] == Decimal("0.00000125")
    assert values["input", 200_000] == Decimal("0.0000025")
    assert values["cache_read", 200_000] == Decimal("0.00000025")


def test_the_price_of_the_day_holds():
    """The vendor cut the price from 2026-07-30 on."""
    before, _ = priced("openai", "gpt-5.6-luna", day=dt.date(2026, 7, 29))
    after, _ = priced("openai", "gpt-5.6-luna", day=dt.date(2026, 7, 30))
    assert before["input", 0] == Decimal("0.000001")
    assert after["input", 0] == Decimal("0.0000002")


def test_writing_to_a_cache_for_an_hour_costs_more_even_above_a_tier():
    values, _ = priced("anthropic", "claude-sonnet-4-5")
    assert values["cache_write_5m", 0] == Decimal("0.00000375")
    assert values["cache_write_1h", 0] == Decimal("0.000006")
    assert values["cache_write_1h", 200_000] == Decimal("0.000012")


def test_a_class_of_input_without_a_price_costs_the_wider_class_and_says_so():
    values, sources = priced("mistral", "mistral-large-latest", day=dt.date(2025, 6, 1))
    assert values["cache_write_1h", 0] == values["input", 0]
    assert any("no cache_write_1h price" in text for text in sources)


def test_batch_has_its_own_price_or_says_that_it_has_none():
    batch, sources = priced("openai", "gpt-4o", processing="batch")
    assert batch["input", 0] == Decimal("0.00000125")
    assert all("batch" in text for text in sources)
    borrowed, sources = priced("azure", "gpt-4o", processing="batch")
    assert borrowed["input", 0] == Decimal("0.0000025")
    assert all("no batch price known: standard price" in text for text in sources)


def test_keys_may_repeat_and_need_no_processing():
    keys = pl.DataFrame({"provider": ["openai"] * 3, "model": ["gpt-4o"] * 3, "day": [DAY] * 3})
    frame = unit_prices(keys)
    assert frame.height == frame.unique(["provider", "model", "day", "meter", "context_tier_start"]).height
    assert set(frame["processing"]) == {"standard"}


def test_a_price_that_varies_by_the_hour_says_which_one_was_taken():
    values, sources = priced("deepseek", "deepseek-v4-flash")
    assert values["input", 0] == Decimal("0.00000015")
    assert all("17 of 24 hours" in text for text in sources)


def override(**columns):
    return pl.DataFrame({"model": ["gpt-4o"], "meter": ["input"], "usd_per_token": ["0.000002"], **columns})


def test_a_sites_price_wins_over_the_list():
    values, sources = priced("openai", "gpt-4o", overrides=override())
    assert set(values.values()) == {Decimal("0.000002")}
    assert ("output", 0) not in values
    assert sources[0].startswith("site price: gpt-4o")


def test_a_sites_price_holds_only_in_its_time_and_for_its_provider():
    late = override(valid_from=["2026-12-01"])
    assert priced("openai", "gpt-4o", overrides=late)[0]["input", 0] == Decimal("0.0000025")
    over = override(valid_to=[str(DAY)])
    assert priced("openai", "gpt-4o", overrides=over)[0]["input", 0] == Decimal("0.0000025")
    other = override(provider=["azure"])
    assert priced("openai", "gpt-4o", overrides=other)[0]["input", 0] == Decimal("0.0000025")
    assert priced("azure", "gpt-4o", overrides=other)[0]["input", 0] == Decimal("0.000002")


def test_a_site_may_price_its_own_engine_by_pattern():
    glob = override(provider=["hosted_*"]).with_columns(pl.lit("qwen*").alias("model"))
    assert priced("hosted_vllm", "Qwen2.5-7B", overrides=glob)[0]["input", 0] == Decimal("0.000002")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,meter\ngpt-4o,input\n", "usd_per_token"),
        ("model,meter,usd_per_token,colour\ngpt-4o,input,0.000001,red\n", "colour"),
        ("model,meter,usd_per_token\ngpt-4o,input,2.5\n", "row 1, usd_per_token: '2.5'"),
        ("model,meter,usd_per_token\ngpt-4o,prompt,0.000001\n", "row 1, meter: 'prompt'"),
        ("model,meter,usd_per_token,valid_from\ngpt-4o,input,0.000001,1.5.2026\n", "valid_from: '1.5.2026'"),
        ("model,meter,usd_per_token\n,input,0.000001\n", "row 1, model"),
    ],
)
def test_a_wrong_override_is_refused_with_its_row_and_column(tmp_path, text, words):
    path = tmp_path / "prices.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SiteConfigError) as caught:
        read_overrides(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_overrides_are_read_from_csv(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "# agreed in May\nmodel,meter,usd_per_token,context_tier_start\ngpt-4o,input,0.000002,\n",
        encoding="utf-8",
    )
    assert read_overrides(path)["context_tier_start"].to_list() == [0]


def test_an_absent_file_of_overrides_is_an_error_a_user_understands(tmp_path):
    with pytest.raises(SiteConfigError, match="can't read price overrides"):
        read_overrides(tmp_path / "absent.csv")
