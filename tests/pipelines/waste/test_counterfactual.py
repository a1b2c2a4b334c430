"""What a finding says it saves is what is saved: the example week with one waste mended, audited again.

The week is written twice with the same seed, with and without a kind of waste, and both are audited. The drop of tokens
and money from one to the other is compared with what the findings of the first said. A third week has all of it mended:
there the sum of the net savings is compared with the whole drop.

Tolerance: two per cent. Tokens of a message are its share of the bytes of its prompt; what is trimmed is trimmed to what
is usual, the finding counts down to its threshold; and what the gap in the log swallowed is seen by neither audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.calls import is_demand
from pipelines.definitions import build_assets
from pipelines.fleet import load_fleet
from pipelines.schedules import RANGE_END, RANGE_START
from pipelines.site import Site
from pipelines.synth import waste_kinds as kinds
from pipelines.synth.company import START
from pipelines.synth.truth import Truth
from pipelines.synth.week import write_week
from warehouse.store import Warehouse
from warehouse.tables import COST_LINES
from warehouse.waste_tables import FINDINGS

pytestmark = pytest.mark.slow

WITHIN = 0.02
REQUESTS_WRITTEN = 4_000
FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleet.toml"
LEGAL = "model:claude-opus-4-1/team:legal"
CARE = "model:gpt-5-mini/team:customer-care"
POLICIES = "model:gpt-5-mini/team:workplace"
CLAIMED = {
    kinds.REPEATED_DOCUMENTS: ("missed_cache", LEGAL, "contract-review"),
    kinds.OVERSIZE_PROMPTS: ("oversize", f"{CARE}/key:ticket-labels", "ticket-labels"),
    kinds.REPEATED_QUESTIONS: ("response_cache", CARE, "faq-bot"),
    kinds.REPEATED_POLICIES: ("response_cache", POLICIES, "policy-bot"),
    kinds.MISSED_HANDBOOK: ("missed_cache", POLICIES, "policy-bot"),
    kinds.REPEATED_EMBEDDINGS: (
        "duplicate_embedding",
        "model:text-embedding-3-small/team:engineering/key:wiki-index",
        "wiki-index",
    ),
    kinds.NIGHTLY_AT_FULL_PRICE: (
        "batchable",
        "model:gpt-5-mini/team:data/key:review-mining",
        "review-mining",
    ),
    kinds.SHORT_TASKS: (
        "routing_candidate",
        "model:claude-opus-4-1/team:workplace/key:title-maker",
        "title-maker",
    ),
}
"""Kinds that a finding claims money for: its kind, its scope, and the key whose calls they are.

The others: what is known by sessions alone has no money; a log that says more saves nothing; failed attempts of this week
cost nothing, and calls that come through cost something; longer answers cost more; and contexts that are compacted earlier
make other sessions.
"""
ALONE = kinds.REPEATED_POLICIES
"""Mended by itself in one week: it shares its calls with another kind. All others are apart and are mended together."""
TOGETHER = {*CLAIMED, kinds.AGENTS_WITHOUT_CACHE, kinds.FAILED_ATTEMPTS} - {ALONE}


@dataclass(frozen=True)
class Audited:
    """A week, its facts and its findings."""

    truth: Truth
    findings: pl.DataFrame
    requests: pl.DataFrame
    reported_usd: pl.DataFrame
    """What the log says was paid: `api_key_alias, cost_usd`."""

    def named(self, scope: str, kind: str) -> dict[str, object]:
        """The one finding of a kind in a scope."""
        return self.findings.row(
            by_predicate=(pl.col("scope") == scope) & (pl.col("kind") == kind), named=True
        )

    def tokens(self, alias: str, what: str) -> int:
        """Sum of a column over the calls of a key that a model worked on."""
        return self.requests.filter(is_demand(), api_key_alias=alias).select(pl.col(what).sum()).item()

    def usd(self, alias: str | None = None) -> Decimal:
        """Money of the calls of a key, or of all calls."""
        lines = self.reported_usd if alias is None else self.reported_usd.filter(api_key_alias=alias)
        return lines["cost_usd"].sum()

    def uncached(self, alias: str) -> int:
        """Input of a key that was not read from cache."""
        return self.tokens(alias, "input_tokens") - self.tokens(alias, "cache_read_tokens")


def audit(folder: Path, waste: frozenset[str]) -> Audited:
    """Write a week and make everything that its findings need; checks and sizing of hardware are left out."""
    truth = write_week(folder / "week", requests=REQUESTS_WRITTEN, waste=waste)
    warehouse = Warehouse(folder / "out")
    site = Site(
        warehouse=warehouse,
        sources=(str(folder / "week" / "gateway"),),
        fleet=load_fleet(FLEET),
        report_folder=folder / "out",
        fleet_path=str(FLEET),
        title="example week",
    )
    first, last = START.isoformat(), (START + timedelta(days=6)).isoformat()
    end = (START + timedelta(days=7)).isoformat()
    assets = build_assets(dg.DailyPartitionsDefinition(start_date=first, end_date=end, timezone="UTC"))
    landing = dg.AssetSelection.assets("landed_files")
    wanted = dg.AssetSelection.assets("findings", "cost_lines").upstream() - landing
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        for selection, tags in ((landing, {}), (wanted, {RANGE_START: first, RANGE_END: last})):
            dg.materialize(
                assets,
                selection=selection,
                resources={"site": site},
                instance=instance,
                tags=tags,
                run_config=quiet,
            )
    lines = warehouse.read(COST_LINES).filter(pl.col("basis") == "reported")
    return Audited(
        truth,
        warehouse.read(FINDINGS),
        warehouse.scan(REQUESTS).collect(),
        lines.select("api_key_alias", "cost_usd"),
    )


@pytest.fixture(scope="module")
def mended(tmp_path_factory):
    """Audits of weeks by what is mended in them, each made once."""
    made: dict[frozenset[str], Audited] = {}

    def of(*names: str) -> Audited:
        waste = kinds.ALL - set(names)
        if waste not in made:
            made[waste] = audit(tmp_path_factory.mktemp("week"), waste)
        return made[waste]

    return of


def test_money_of_the_audits_is_the_money_of_the_weeks(mended):
    """So that a drop of the one is a drop of the other."""
    for week in (mended(), mended(*kinds.ALL)):
        assert week.usd() == Decimal(week.truth.spend_usd)


def test_nothing_is_found_where_no_waste_is_planted(mended):
    clean = mended(*kinds.ALL)
    assert clean.findings.select("kind", "scope", "title").rows() == []


@pytest.mark.parametrize("waste", sorted(CLAIMED))
def test_mending_a_waste_saves_the_money_that_its_finding_names_and_takes_it_away(mended, waste):
    before, after = mended(), mended(*({ALONE} if waste == ALONE else TOGETHER))
    kind, scope, key = CLAIMED[waste]
    found = before.named(scope, kind)
    saved, claimed = before.usd(key) - after.usd(key), found["usd"]
    assert saved > 0
    assert float(saved) == pytest.approx(float(claimed), rel=WITHIN)
    assert found["id"] not in after.findings["id"].to_list()


def test_mending_a_waste_leaves_the_findings_of_other_teams(mended):
    others = pl.col("team").is_null() | (pl.col("team") != "workplace")
    figures = ("id", "tokens", "usd", "requests", "tokens_net", "usd_net")
    before, after = (
        week.findings.filter(others).select(figures).sort("id") for week in (mended(), mended(ALONE))
    )
    assert before.height >= len(CLAIMED) - 2
    assert after.equals(before)


def test_missed_tokens_are_those_that_are_read_once_the_client_asks_for_caching(mended):
    before, after = mended(), mended(*TOGETHER)
    claimed = before.named(LEGAL, "missed_cache")["tokens"]
    key = "contract-review"
    assert before.uncached(key) - after.uncached(key) == pytest.approx(claimed, rel=WITHIN)
    assert before.tokens(key, "input_tokens") == after.tokens(key, "input_tokens")


def test_oversize_tokens_are_those_that_are_no_longer_sent(mended):
    before, after = mended(), mended(*TOGETHER)
    claimed = before.named(f"{CARE}/key:ticket-labels", "oversize")["tokens"]
    sent = [week.tokens("ticket-labels", "input_tokens") for week in (before, after)]
    assert sent[0] - sent[1] == pytest.approx(claimed, rel=WITHIN)


def test_repeated_prompts_are_those_that_the_response_cache_answers(mended):
    before, after = mended(), mended(*TOGETHER)
    claimed = before.named(CARE, "response_cache")
    planted = before.truth.of_kind(kinds.REPEATED_QUESTIONS)
    assert claimed["requests"] == planted.requests
    hits = [
        week.requests.filter("response_cache_hit", api_key_alias="faq-bot").height for week in (before, after)
    ]
    assert hits[1] - hits[0] == pytest.approx(claimed["requests"], rel=WITHIN)


def test_history_that_sessions_send_again_is_an_upper_bound_of_what_caching_reads(mended):
    """Redacted messages: nothing is claimed in money, and the bound holds and is near."""
    before, after = mended(), mended(*TOGETHER)
    planted = before.truth.of_kind(kinds.AGENTS_WITHOUT_CACHE)
    read = after.tokens("agent-ci", "cache_read_tokens") - before.tokens("agent-ci", "cache_read_tokens")
    bound = planted.detail["session_upper_bound_tokens"]
    assert 0.9 * bound <= read <= bound
    assert before.usd("agent-ci") > after.usd("agent-ci")


def test_failed_attempts_are_gone_once_nothing_fails_and_no_money_was_claimed(mended):
    before, after = mended(), mended(*TOGETHER)
    found = before.findings.filter(kind="failed_attempts")
    assert found["usd"].sum() == 0
    assert after.findings.filter(kind="failed_attempts").is_empty()
    retried = sum(planted.requests for planted in before.truth.planted if planted.kind.endswith("_attempts"))
    failed = before.requests.filter(status="error").height
    lost = sum(planted.requests for planted in before.truth.planted if planted.kind == "failed_calls")
    assert failed == retried + lost
    assert after.requests.filter(status="error").is_empty()


def test_net_savings_add_up_to_the_whole_drop(mended):
    """Everything that money is claimed for is mended at once: savings that overlap are counted once."""
    before, after = mended(), mended(*CLAIMED)
    ids = [f"{kind}/{scope}" for kind, scope, _ in CLAIMED.values()]
    claimed = before.findings.filter(pl.col("id").is_in(ids))
    assert claimed.height == len(ids)
    assert float(claimed["usd_net"].sum()) == pytest.approx(float(before.usd() - after.usd()), rel=WITHIN)
    assert after.findings.filter(pl.col("id").is_in(ids)).is_empty()


def test_two_savings_on_the_same_calls_are_not_added_twice(mended):
    """policy-bot repeats whole prompts, and misses the handbook in the cache.

    Tolerance: what a call repeats is measured on the log as it is, where the prompts that the response cache answers still
    keep the handbook alive. Without them, some of the few calls that are left no longer find it.
    """
    before, after = mended(), mended(*CLAIMED)
    both = (kinds.REPEATED_POLICIES, kinds.MISSED_HANDBOOK)
    claimed = [before.named(scope, kind) for kind, scope, _ in (CLAIMED[waste] for waste in both)]
    dropped = before.usd("policy-bot") - after.usd("policy-bot")
    net, gross = (sum(found[name] for found in claimed) for name in ("usd_net", "usd"))
    assert float(net) == pytest.approx(float(dropped), rel=0.1)
    assert gross > Decimal("1.3") * dropped
