"""Findings: what to change, with its figures, its evidence, the calls behind it, and its place in the ranking.

Belongs here: what every kind of finding must say, and the ranking. Does not belong here: measuring (`repetition.py`,
`oversize.py`, ...), the kinds (`repetition_findings.py`, `call_findings.py`, ...), what is left to save after other
changes (`net_savings.py`), words that several kinds share (`sentences.py`).

To add a kind, write a function beside its measures that returns `Found`:
    1. a `Finding` per scope that exceeds a stated threshold. Only leaves (model and team) or applications in them, so that
       no token is reported in two scopes of one kind.
    2. the calls behind each (`BEHIND`): one row per finding and call. Columns of what the change does to the call are null
       where it does nothing or nothing is known. With calls, `requests` and the query follow from them, and net savings
       are exact. Without calls the finding must state `requests` and `query`; its savings are taken as a share of its leaf.
    3. `step`, the place of the change in the order of application (`STEPS`); None if it claims no saving.
Then keep it in the asset that made it and name it in `FOUND_BY` (both in `assets.py`). `usd` and `tokens` are what the
change would save alone, at the prices of `pricing.base_prices`: for kinds with calls, what `net_savings.alone` says.

Severity is the net share of the money spent (high from 5 %, medium from 1 %, low from 0.1 %, else info); where the money
is unknown, the share of input tokens, and then never high. Findings are ranked by net money; those without money stand
behind, by tokens: unknown is not zero.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Literal

import polars as pl

from parsers.records import INSTANT, MONEY
from pipelines.waste.rows_query import calls_behind
from warehouse.waste_tables import FINDINGS

Step = Literal["failed", "repeated", "trimmed", "read", "kept_longer", "routed", "batched"]
STEPS: tuple[Step, ...] = ("failed", "repeated", "trimmed", "read", "kept_longer", "routed", "batched")
"""Order of application: what is not sent at all comes first, then what is sent shorter, read from cache, kept in it
longer, sent to a smaller model, sent in batch. Each acts on what those before have left.
"""

BEHIND = pl.Schema(
    {
        "finding": pl.Categorical(),
        "source_file": pl.Categorical(),
        "source_line": pl.Int64(),
        "cut_input_tokens": pl.Int64(),
        "read_tokens": pl.Int64(),
        "cut_output_tokens": pl.Int64(),
        "extra_usd": MONEY,
        "price_ratio": MONEY,
    }
)
"""Calls behind findings, and what the change does to each.

cut_input_tokens: input that is no longer sent, evenly out of its cached and its computed part.
read_tokens: computed input that is read from cache instead.
cut_output_tokens: output that is no longer generated.
extra_usd: money saved beside what these tokens cost at base prices; negative = it costs (a cache write). The cost of a
    failed attempt stands here, since no list tells it.
price_ratio: price of all tokens of the call after the change / before it.
"""

DRAFTS = pl.Schema(
    {
        "kind": pl.String(),
        **dict.fromkeys(("scope", "model", "team", "application"), pl.String()),
        "step": pl.String(),
        "title": pl.String(),
        "evidence_level": pl.String(),
        "advice": pl.String(),
        "requests": pl.Int64(),
        "tokens": pl.Int64(),
        "usd": MONEY,
        "first_at": INSTANT,
        "last_at": INSTANT,
        "query": pl.String(),
        "id": pl.String(),
    }
)
"""Findings before they are weighed against each other."""

_SEVERITIES = ((0.05, "high"), (0.01, "medium"), (0.001, "low"), (0.0, "info"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding as its kind states it; see the head of the module. None is unknown."""

    kind: str
    scope: str
    model: str | None
    team: str | None
    application: str | None = None
    step: Step | None
    title: str
    evidence_level: str
    advice: str
    tokens: int | None
    usd: Decimal | None
    first_at: dt.datetime | None
    last_at: dt.datetime | None
    requests: int | None = None
    query: str | None = None

    @property
    def id(self) -> str:
        """Its identifier: kind and scope."""
        return f"{self.kind}/{self.scope}"


@dataclass(frozen=True, slots=True)
class Found:
    """Findings (`DRAFTS`) and the calls behind them (`BEHIND`)."""

    rows: pl.DataFrame
    calls: pl.DataFrame

    @classmethod
    def of(cls, findings: Sequence[Finding], *calls: pl.DataFrame) -> Found:
        """Findings with their calls.

        Args:
            findings: the findings.
            calls: frames of `finding, source_file, source_line` and any others of the columns of `BEHIND`; rows of
                other findings are dropped.

        """
        rows = [{**asdict(finding), "id": finding.id} for finding in findings]
        names = pl.Series([finding.id for finding in findings], dtype=pl.Categorical)
        behind = pl.concat([BEHIND.to_frame(), *map(conformed, calls)])
        return cls(pl.DataFrame(rows, schema=DRAFTS), behind.filter(pl.col("finding").is_in(names.implode())))

    @classmethod
    def together(cls, parts: Sequence[Found]) -> Found:
        """Findings of several kinds as one."""
        rows = [DRAFTS.to_frame(), *(part.rows for part in parts)]
        return cls(pl.concat(rows), pl.concat([BEHIND.to_frame(), *(part.calls for part in parts)]))


def conformed(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls behind findings as `BEHIND`; columns that they lack are null."""
    have = set(calls.columns)
    return calls.select(
        (pl.col(name) if name in have else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in BEHIND.items()
    )


def waste_findings(
    savings: pl.DataFrame, freed: pl.DataFrame, total_usd: Decimal | None, input_tokens: int
) -> pl.DataFrame:
    """Rank what is worth changing.

    Args:
        savings: findings with their net figures, of `net_savings.net_savings`.
        freed: `id, gpu_seconds, replicas` of the findings that one's own hardware serves.
        total_usd: money spent in the same window; None if unknown.
        input_tokens: input of the calls that were judged.

    Returns:
        Rows of `findings`, what saves most first; none where nothing exceeds its threshold.

    """
    steps = pl.Series("step", STEPS).to_frame().with_row_index("application_order", offset=1)
    rows = savings.join(steps, on="step", how="left").join(freed, on="id", how="left")
    queries = [query or calls_behind(name) for name, query in savings.select("id", "query").iter_rows()]
    found = rows.with_columns(
        severity=_severity(total_usd, input_tokens),
        rows_query=pl.Series(queries, dtype=pl.String),
        capacity_basis=pl.when(pl.col("gpu_seconds").is_not_null()).then(pl.lit("modelled")),
    )
    return ranked(FINDINGS.conform(found))


def ranked(findings: pl.DataFrame) -> pl.DataFrame:
    """Rows of `findings` by net money, then by tokens; those without money last."""
    size = pl.coalesce("tokens_net", "tokens")
    by = [pl.col("usd_net"), size, pl.col("id")]
    return findings.sort(by, descending=[True, True, False], nulls_last=True)


def _severity(total_usd: Decimal | None, input_tokens: int) -> pl.Expr:
    by_tokens = _graded(
        pl.coalesce("tokens_net", "tokens").fill_null(0) / max(input_tokens, 1), _SEVERITIES[1:]
    )
    if not total_usd:
        return by_tokens
    share = pl.col("usd_net").cast(pl.Float64) / float(total_usd)
    return pl.when(share.is_not_null()).then(_graded(share, _SEVERITIES)).otherwise(by_tokens)


def _graded(share: pl.Expr, grades: Sequence[tuple[float, str]]) -> pl.Expr:
    return pl.coalesce(
        *(pl.when(share >= least).then(pl.lit(name)) for least, name in grades), pl.lit(grades[-1][1])
    )
