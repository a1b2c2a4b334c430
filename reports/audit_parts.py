"""The parts of audit.json that come from the later stages: waste, efficiency, costs, sizing, findings.

Belongs here: one function per key, from the marts' frames to plain values. Does not belong here: window,
inputs and tokens (`audit_json.py`), sentences (`decision.py`). Sums are taken in Polars: they are exact in
decimals of 38 digits, which Python's default context is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl

from reports.cache_parts import cache_parts
from reports.json_values import json_row, json_value, known_sum, money_text, ratio, real, weighted_mean

EVIDENCE_LEVELS = ("hash_chain", "prompt_hash", "session", "none")
CURRENCY = "USD"
NO_KEY = "(none)"
"""Key of `costs.by_key` for calls without an API key, and for idle hardware."""
KEY = pl.coalesce("api_key_alias", "api_key_hash", pl.lit(NO_KEY))
"""What a key is called: its alias, else its hash."""

MFU_MARKS = (0.30, 0.75)
_PREFIX_SUMS = ("seen_before_tokens", "cache_read_tokens", "missed_tokens", "upper_bound_tokens")
_PREFIX_RATIOS = ("block_hit_ratio", "token_hit_ratio", "mean_request_hit_ratio")


def plain(value: Any) -> Any:
    """Anything as values of JSON: decimals as strings, dates as ISO 8601, tuples as lists."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case float() | Decimal() | date():
            return json_value(value)
        case _:
            return value if isinstance(value, str | int | None) else str(value)


def waste_part(
    repetition: pl.DataFrame, cache_curve: pl.DataFrame, oversize: pl.DataFrame, retries: pl.DataFrame
) -> dict[str, Any]:
    """Repeated prefixes, the cache curve, oversize prompts and failed attempts."""
    return {
        "prefix": _prefix(repetition),
        **cache_parts(cache_curve),
        "oversize": _oversize(oversize),
        "retries": _retries(retries),
    }


def _prefix(repetition: pl.DataFrame) -> dict[str, Any]:
    """Figures of the scope `all`; null where the mart has no such row: nothing was judged."""
    rows = repetition.filter(pl.col("scope") == "all").to_dicts()
    row: dict[str, Any] = rows[0] if rows else {}
    return {
        "requests": row.get("requests"),
        "evidence": {
            level: {
                "requests": row.get(f"{level}_requests"),
                "input_tokens": row.get(f"{level}_input_tokens"),
            }
            for level in EVIDENCE_LEVELS
        },
        **{name: row.get(name) for name in _PREFIX_SUMS},
        "missed_usd": money_text(row.get("missed_usd")),
        **{name: ratio(row.get(name)) for name in _PREFIX_RATIOS},
        "by_scope": [
            json_row(part)
            for part in repetition.filter(pl.col("scope") != "all")
            .select("scope", "requests", *_PREFIX_SUMS, "missed_usd", *_PREFIX_RATIOS)
            .sort("scope")
            .to_dicts()
        ],
    }


def _oversize(oversize: pl.DataFrame) -> dict[str, Any]:
    """Sums by rule.

    The scopes of one rule don't overlap; a call may break several rules, so rules are not added up.
    """
    summed = (
        oversize.filter((pl.col("scope") == "all") | ~(pl.col("scope") == "all").any().over("rule"))
        .group_by("rule")
        .agg(
            pl.col("requests", "input_tokens", "excess_tokens").sum(),
            *(known_sum(name) for name in ("excess_usd", "excess_kv_token_seconds", "excess_ttft_s")),
            pl.len().alias("scopes"),
        )
        .sort("rule")
    )
    return {
        "by_rule": {row.pop("rule"): json_row(row) for row in summed.to_dicts()},
        "by_scope": [json_row(row) for row in oversize.sort("rule", "scope").to_dicts()],
    }


def _retries(retries: pl.DataFrame) -> dict[str, Any]:
    """Failed attempts of all scopes together and by kind of error."""
    whole = retries.filter(pl.col("scope") == "all")
    counts = ("attempts", "calls", "recovered_calls")
    amounts = ("billed_tokens", "estimated_tokens", "cost_usd")
    totals = whole.select(pl.col("attempts").sum(), *(known_sum(name) for name in amounts)).row(0, named=True)
    return {
        **json_row(totals),
        "by_error_kind": {
            row["error_kind"]: json_row({name: row[name] for name in (*counts, *amounts)})
            for row in whole.sort("error_kind").to_dicts()
        },
    }


def efficiency_part(hourly: pl.DataFrame) -> list[dict[str, Any]]:
    """One entry per pool: hourly figures weighted by the time they cover.

    MFU and MBU over busy time are weighted by busy seconds, MFU over wall time by wall seconds; tokens per
    joule is output over energy in the hours that have both. A ratio above 1 can't be: it is null here and
    `problem` says so. `busy_histogram` says in how much of the covered time which share of the hour was busy.
    """
    histograms = _busy_histograms(hourly)
    grouped = hourly.group_by("scope").agg(
        weighted_mean("mfu_busy_ratio", "busy_s").alias("mfu_busy"),
        weighted_mean("mfu_wall_ratio", "wall_s").alias("mfu_wall"),
        weighted_mean("mbu_busy_ratio", "busy_s").alias("mbu_busy"),
        # The same bytes over wall time: an idle second moves none.
        (weighted_mean("mbu_busy_ratio", "busy_s") * _quotient("busy_s", "wall_s")).alias("mbu_wall"),
        _quotient("output_tokens", "energy_j").alias("tokens_per_j"),
        _quotient("output_tokens", "wall_s").alias("tokens_per_s"),
        _quotient("input_tokens", "wall_s").alias("input_tokens_per_s"),
        weighted_mean("power_w_mean", "wall_s"),
        _quotient("busy_s", "wall_s").alias("busy_ratio"),
        known_sum("energy_j"),
        pl.col("wall_s").sum(),
        pl.col("accelerators").max(),
        pl.col("power_source").drop_nulls().unique().sort(),
        pl.col("basis").unique().sort(),
    )
    rows = grouped.sort("scope").to_dicts()
    return [_efficiency(row) | {"busy_histogram": histograms[row["scope"]]} for row in rows]


def _busy_histograms(hourly: pl.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """By pool: ten bins of the busy share of an hour, each with the seconds of such hours; unknown hours left out."""
    share = (pl.col("busy_s") / pl.col("wall_s")).clip(0.0, 1.0)
    known = hourly.filter(pl.col("busy_s").is_not_null() & (pl.col("wall_s") > 0))
    sums = known.group_by("scope", (share * 10).floor().clip(0, 9).cast(pl.Int64).alias("bin")).agg(
        pl.col("wall_s").sum()
    )
    seconds = {(scope, place): wall for scope, place, wall in sums.iter_rows()}
    return {
        scope: [
            {
                "from_ratio": place / 10,
                "to_ratio": (place + 1) / 10,
                "wall_s": seconds.get((scope, place), 0.0),
            }
            for place in range(10)
        ]
        for scope in hourly["scope"].unique()
    }


def mfu_mark(mfu: float | None) -> str | None:
    """Where an MFU lies against the marks that users know: 30 % is what serving commonly reaches, 75 % out of reach."""
    if mfu is None:
        return None
    low, high = MFU_MARKS
    return "below_30" if mfu < low else "from_30_to_75" if mfu <= high else "above_75"


def _quotient(part: str, whole: str) -> pl.Expr:
    """Sum over sum, of the hours in which both are known."""
    both = pl.col(part).is_not_null() & pl.col(whole).is_not_null()
    below = pl.col(whole).filter(both).sum()
    return pl.when(below > 0).then(pl.col(part).filter(both).sum() / below).otherwise(None)


def _efficiency(row: dict[str, Any]) -> dict[str, Any]:
    ratios = ("mfu_busy", "mfu_wall", "mbu_busy", "mbu_wall", "busy_ratio")
    above = [name for name in ratios if row[name] is not None and row[name] > 1]
    sources = row["power_source"]
    return {
        "scope": row["scope"],
        **{name: ratio(row[name]) for name in ratios},
        **{
            name: real(row[name])
            for name in (
                "tokens_per_j",
                "tokens_per_s",
                "input_tokens_per_s",
                "power_w_mean",
                "energy_j",
                "wall_s",
            )
        },
        # Where some hours were measured and others modelled, the mean is no measurement.
        "power_source": None if not sources else "measured" if sources == ["measured"] else "modelled",
        "accelerators": row["accelerators"],
        "against_marks": mfu_mark(ratio(row["mfu_busy"])),
        "basis": row["basis"],
        "problem": f"{', '.join(above)} above 1: check accelerator, count and architecture in fleet.toml"
        if above
        else None,
    }


def costs_part(lines: pl.DataFrame) -> dict[str, Any]:
    """Money of the window. total = by_team + unattributed = by_key = by_model, each summed, to the last digit.

    A sum is null where none of its parts is priced; `unpriced_requests` counts the calls that no sum holds.
    `idle` is part of `unattributed`, and of `by_key`'s NO_KEY: idle hardware was used with no key.
    """
    by_team = _by(lines.filter(pl.col("team").is_not_null()), "team")
    by_basis = _by(lines.filter(pl.col("basis") != "unpriced"), "basis")
    nobody = lines.filter(pl.col("team").is_null())
    unpriced = int(lines.filter(pl.col("basis") == "unpriced")["requests"].sum())
    return {
        "currency": CURRENCY,
        "total": _total(lines),
        "by_team": by_team,
        "by_key": _by(lines.with_columns(key=KEY), "key"),
        "by_model": _by(lines, "model"),
        "by_day": {str(day): usd for day, usd in sorted(_by(lines, "charge_day").items())},
        "by_meter": _by(lines, "meter"),
        "by_basis": by_basis,
        "unattributed": "0" if nobody.is_empty() else _total(nobody),
        "idle": _total(lines.filter(pl.col("basis") == "idle")) or "0",
        "unpriced_requests": unpriced,
        "basis": ", ".join(by_basis) or ("unpriced" if unpriced else "none"),
        "price_sources": sorted(set(lines["price_source"].drop_nulls())),
    }


def _total(lines: pl.DataFrame) -> str | None:
    return money_text(lines.select(known_sum("cost_usd")).item())


def _by(lines: pl.DataFrame, column: str) -> dict[str, str | None]:
    """Money by one column, the most first, unknown last."""
    summed = lines.group_by(column).agg(known_sum("cost_usd"))
    ordered = summed.sort(pl.col("cost_usd"), column, descending=[True, False], nulls_last=True)
    return {str(name): money_text(usd) for name, usd in ordered.iter_rows()}


def sizing_part(options: pl.DataFrame) -> dict[str, Any]:
    """Both scenarios: ranked options, what runs today and what is recommended, added up over pools."""
    return {
        scenario: _scenario(options.filter(pl.col("scenario") == scenario))
        for scenario in ("as_is", "waste_removed")
    }


def _scenario(options: pl.DataFrame) -> dict[str, Any]:
    rows = [_option(row) for row in options.sort("pool", "rank").to_dicts()]
    pools = sorted({row["pool"] for row in rows})
    return {
        "choice": _together([row for row in rows if row["is_choice"]], pools),
        "today": _together([row for row in rows if row["is_today"]], pools),
        "options": rows,
    }


def _option(row: dict[str, Any]) -> dict[str, Any]:
    money = ("usd_per_month", "usd_per_mtok", "usd_per_mtok_saturated")
    same = (
        "pool",
        "rank",
        "is_choice",
        "is_today",
        "model",
        "accelerator",
        "count",
        "replicas",
        "parallelism",
    )
    return {
        **{name: row[name] for name in (*same, "precision", "serving")},
        **{name: money_text(row[name]) for name in money},
        "power_kw": real(row["power_kw"]),
        "tokens_per_j": real(row["tokens_per_j"]),
        # A load above capacity is a fact, so these two may exceed 1: they are loads, not shares.
        "utilisation": real(row["utilisation_ratio"]),
        "peak_utilisation": real(row["peak_utilisation_ratio"]),
        **{
            f"{what}_ms": {stat: real(row[f"{what}_ms_{stat}"]) for stat in ("p50", "p95", "low", "high")}
            for what in ("ttft", "tpot")
        },
        "meets_slo": row["meets_slo"],
        "breaks_first": row["breaks_first"],
        "confidence": row["confidence"],
        "reasons": row["reasons"] or [],
    }


_ADDED = ("count", "replicas", "power_kw")
_COMMON = ("model", "accelerator", "parallelism", "precision", "serving", "confidence", "breaks_first")


def _together(options: Sequence[dict[str, Any]], pools: Sequence[str]) -> dict[str, Any] | None:
    """One option per pool as one answer.

    Counts, power and money add up (null where one is unknown, or where a pool has no such option); what is
    the same for all pools is stated, what differs is null. With one pool it is that pool's option.
    """
    if not options:
        return None
    if len(pools) == 1:
        return {**options[0], "pools": [options[0]["pool"]], "pools_without": []}
    without = [pool for pool in pools if pool not in {option["pool"] for option in options}]
    usd = None if without else _added_money([option["usd_per_month"] for option in options])
    slo = {option["meets_slo"] for option in options}
    return {
        "pool": None,
        **{name: _same([option[name] for option in options]) for name in _COMMON},
        **{name: _added([option[name] for option in options]) for name in _ADDED},
        "usd_per_month": usd,
        "meets_slo": False if False in slo else None if None in slo else True,
        "reasons": [],
        "pools": [option["pool"] for option in options],
        "pools_without": without,
    }


def _same(values: Sequence[Any]) -> Any:
    return values[0] if all(value == values[0] for value in values) else None


def _added(values: Sequence[Any]) -> Any:
    return None if any(value is None for value in values) else sum(values)


def _added_money(values: Sequence[str | None]) -> str | None:
    known = pl.Series("usd", values, dtype=pl.String).cast(pl.Decimal(38, 12)).to_frame()
    return None if known["usd"].null_count() else money_text(known.select(pl.col("usd").sum()).item())
