"""fleet.toml: what it may say, what stands where it says nothing, and errors with file, key and remedy."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from parsers.errors import SiteConfigError
from parsers.records import REQUESTS
from pipelines.fleet import Fleet, load_fleet
from pipelines.pricing import prices_of

GOOD = """
[site]
name = "ACME"
timezone = "Europe/Berlin"
electricity_usd_per_kwh = 0.18
pue = 1.3
[slo]
ttft_p95_ms = 1500
tpot_p95_ms = 60
[[pools]]
name = "chat"
models = ["llama-3.3-70b*", "*/llama-3.3-70b*"]
architecture = "Llama 3.3 70B"
accelerator = "H100"
accelerators = 8
tensor_parallel = 4
serving = "own"
capex_usd_per_accelerator = 27000.10
[[pools]]
name = "small"
models = ["qwen3-8b"]
architecture = "qwen3-8b"
accelerator = "L40S"
accelerators = 2
"""


@pytest.fixture
def write(tmp_path):
    def to_file(text):
        path = tmp_path / "fleet.toml"
        path.write_text(text, "utf-8")
        return path

    return to_file


def test_pools_resolve_to_records_of_the_catalogue_and_money_stays_exact(write):
    chat, small = load_fleet(write(GOOD)).pools
    assert (chat.card.name, chat.model.name, chat.replicas) == ("H100 SXM5 80GB", "Llama 3.3 70B", 2)
    assert chat.capex_usd_per_accelerator == Decimal("27000.10")
    assert (small.tensor_parallel, small.precision, small.serving) == (1, "bf16", "cloud")


def test_pool_of_a_model_matches_globs_whatever_the_case(write):
    fleet = load_fleet(write(GOOD))
    pool = fleet.pool_of("meta-llama/Llama-3.3-70B-Instruct")
    assert pool is not None
    assert pool.name == "chat"
    assert fleet.pool_of("qwen3-8b-other") is None


def test_without_a_file_every_default_is_named_with_its_reason():
    fleet = Fleet.default()
    text = "\n".join(fleet.basis)
    for key in (
        "electricity_usd_per_kwh",
        "pue",
        "amortisation_years",
        "growth_per_year",
        "headroom_ratio",
        "ttft",
        "tpot",
    ):
        assert key in text
    assert fleet.pool_of("anything") is None


def test_only_what_is_not_stated_is_named_as_default(write):
    text = "\n".join(load_fleet(write(GOOD)).basis)
    assert "site.pue" not in text
    assert "site.headroom_ratio = 0.2" in text
    assert "pool small" in text
    assert "USD per accelerator hour" in text
    assert "pool chat: 2" not in text


@pytest.mark.parametrize(
    ("old", "new", "key", "remedy"),
    [
        ("pue = 1.3", "pu = 1.3", "site.pu", "Did you mean 'pue'"),
        ("pue = 1.3", 'pue = "high"', "site.pue", "Correct the value"),
        ("pue = 1.3", "pue = 0.9", "site.pue", "Correct the value"),
        ("pue = 1.3", "pue = nan", "site.pue", "Correct the value"),
        ('"H100"', '"H1000"', "pools[1].accelerator", "H100 SXM5 80GB"),
        ('"qwen3-8b"\naccelerator', '"qwen8"\naccelerator', "pools[2].architecture", "Qwen3 8B"),
        ("tensor_parallel = 4", "tensor_parallel = 3", "pools[1]", "multiple of tensor_parallel"),
        ('name = "chat"', "", "pools[1].name", "Add name"),
        ('name = "chat"', 'name = "small"', "fleet.toml", "Give each pool its own name"),
        ("Europe/Berlin", "Europe/Berlim", "site.timezone", "Europe/Berlin"),
        ("[slo]", "[sloo]", "sloo", "Did you mean 'slo'"),
        ("pue = 1.3", "pue == 1.3", "fleet.toml", "Correct that line"),
    ],
)
def test_an_error_names_file_key_and_remedy_in_one_line(write, old, new, key, remedy):
    assert old in GOOD
    with pytest.raises(SiteConfigError) as caught:
        load_fleet(write(GOOD.replace(old, new)))
    text = str(caught.value)
    assert "fleet.toml" in text
    assert key in text
    assert remedy in text
    assert "\n" not in text


def test_an_absent_file_is_a_site_error(tmp_path):
    with pytest.raises(SiteConfigError, match="can't be read"):
        load_fleet(tmp_path / "none.toml")
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(SiteConfigError, match="it is no file"):
            load_fleet(path)


OWN_PRICES = "provider,model,meter,usd_per_token\nopenai,gpt-5*,input,0.0000005\n"


def test_a_sites_own_prices_lie_beside_the_file_and_come_before_list_prices(write, tmp_path):
    (tmp_path / "prices.csv").write_text(OWN_PRICES, "utf-8")
    fleet = load_fleet(write('[site]\nprices = "prices.csv"\n'))
    at = datetime(2026, 11, 2, tzinfo=UTC)
    calls = [
        {"provider": "openai", "model_served": name, "started_at": at, "status": "ok"}
        for name in ("gpt-5-mini", "gpt-4o")
    ]
    rows = REQUESTS.conform(pl.DataFrame(calls)).lazy()
    own = prices_of(rows, fleet.price_overrides)
    listed = prices_of(rows)
    of_mini = own.filter((pl.col("model") == "gpt-5-mini") & (pl.col("meter") == "input"))
    assert of_mini["usd_per_token"].to_list() == [Decimal("0.0000005")]
    other = pl.col("model") == "gpt-4o"
    assert own.filter(other).height > 0
    assert own.filter(other).equals(listed.filter(other))


def test_without_own_prices_there_are_none(write):
    assert load_fleet(write(GOOD)).price_overrides is None


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "can't read price overrides"),
        ("model,meter\nm,input\n", "columns missing: usd_per_token"),
        (OWN_PRICES.replace("0.0000005", "0.5"), "row 1, usd_per_token"),
    ],
)
def test_own_prices_that_are_wrong_are_told_with_their_file(write, tmp_path, content, what):
    if content is not None:
        (tmp_path / "prices.csv").write_text(content, "utf-8")
    with pytest.raises(SiteConfigError, match=what) as told:
        load_fleet(write('[site]\nprices = "prices.csv"\n'))
    assert "prices.csv" in str(told.value)
