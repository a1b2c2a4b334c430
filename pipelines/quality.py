"""What a reader must know of the data: checks that ran, what was dropped, what is unknown.

Belongs here: the rows of DATA_QUALITY. Does not belong here: the checks themselves (`suites.py`), their
running (`checks.py`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.records import FILES, REQUESTS
from pipelines.calls import is_demand, is_served, model_name
from pipelines.costs.compare import price_disagreement
from pipelines.demand.largest import MOST_MODELS, OTHER_MODELS
from pipelines.ingest.duplicates import DroppedDoubles
from pipelines.ingest.span import audited_span
from pipelines.pricing import UNIT_PRICES
from pipelines.profiles import REJECTED, REJECTED_AT_MOST, UNACCOUNTED
from pipelines.suites import Outcome
from warehouse.store import replacing
from warehouse.tables import COST_LINES, COVERAGE, DATA_QUALITY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipelines.site import Site
    from warehouse.store import Warehouse

_SEVERITY = {"critical": "error", "warning": "warning"}
_SUFFIX = ".checks.json"
_PRICES_DIFFER_RATIO = 0.01
_TOLD_WITH_FIGURES = frozenset(f"{FILES.name}: {rule}" for rule in (UNACCOUNTED, REJECTED))
"""Rules whose figures `_files` states whole."""


def remember_outcomes(warehouse: Warehouse, table: str, outcomes: Sequence[Outcome]) -> None:
    """Keep what became of a suite, for the report."""
    with replacing(_outcomes_file(warehouse, table)) as path:
        path.write_text(json.dumps([asdict(item) for item in outcomes]), encoding="utf-8")


def _outcomes_file(warehouse: Warehouse, table: str) -> Path:
    return warehouse.marts_folder / f"{table}{_SUFFIX}"


def data_quality(site: Site) -> pl.DataFrame:
    """Rows of DATA_QUALITY: failed checks first, then what the reader must know."""
    rows = [
        *_checks(site.warehouse),
        *_files(site),
        *_strays(site),
        *_unknowns(site),
        *_models(site),
        *_money(site),
    ]
    frame = pl.DataFrame(rows, schema=DATA_QUALITY.schema, orient="row")
    return frame.sort("passed", "severity", maintain_order=True)


def _row(check: str, severity: str, passed: bool, detail: str) -> dict[str, Any]:
    return {"check": check, "severity": severity, "passed": passed, "detail": detail}


def blocking_failures(warehouse: Warehouse) -> list[str]:
    """The rules that stopped a run, each with what was found."""
    return [
        f"{item.check} ({item.detail})"
        for _, outcomes in _all_outcomes(warehouse)
        for item in outcomes
        if item.blocks
    ]


def forget_outcomes(warehouse: Warehouse) -> None:
    """Remove what became of the suites in an earlier run."""
    for path in warehouse.marts_folder.glob(f"*{_SUFFIX}"):
        path.unlink()


def _all_outcomes(warehouse: Warehouse) -> Iterator[tuple[str, list[Outcome]]]:
    for path in sorted(warehouse.marts_folder.glob(f"*{_SUFFIX}")):
        outcomes = [Outcome(**item) for item in json.loads(path.read_text(encoding="utf-8"))]
        yield path.name.removesuffix(_SUFFIX), outcomes


def _checks(warehouse: Warehouse) -> Iterator[dict[str, Any]]:
    """Every failed rule by itself; the passed ones of a table as one line."""
    for table, outcomes in _all_outcomes(warehouse):
        for item in outcomes:
            if not item.passed and item.check not in _TOLD_WITH_FIGURES:
                yield _row(item.check, _SEVERITY[item.severity], passed=False, detail=item.detail)
        passed = sum(item.passed for item in outcomes)
        severity = "error" if any(item.blocks for item in outcomes) else "warning"
        yield _row(f"{table}: rules", severity, passed == len(outcomes), f"{passed} of {len(outcomes)} hold")


def _files(site: Site) -> Iterator[dict[str, Any]]:
    files = site.warehouse.read(FILES)
    lines, rows, rejects, other = (
        int(files[name].sum()) for name in ("lines", "rows", "rejects", "other_lines")
    )
    yield _row(
        "every line is accounted for",
        "error",
        lines == rows + rejects + other,
        f"{lines:,} lines = {rows:,} rows + {rejects:,} rejects + {other:,} other",
    )
    share = rejects / lines if lines else 0.0
    yield _row(
        "rejected lines",
        "warning",
        share <= REJECTED_AT_MOST,
        f"{rejects:,} of {lines:,} lines ({share:.2%}) could not be read",
    )
    unread = files.filter(pl.col("problem").is_not_null())
    shown = "; ".join(unread["problem"].head(5).to_list())
    yield _row(
        "files that could be read whole",
        "warning",
        unread.is_empty(),
        f"{files.height - unread.height:,} of {files.height:,} files" + (f". Not: {shown}" if shown else ""),
    )
    copies = files.filter(pl.col("copy_of").is_not_null()).height
    doubles = int(DroppedDoubles(site.warehouse).by_format()["rows"].sum())
    yield _row(
        "doubles",
        "info",
        passed=True,
        detail=f"{copies:,} copies of files left out, {doubles:,} rows seen twice dropped",
    )
    yield _unused_fields(site)
    gaps = site.warehouse.read(COVERAGE).filter("is_gap").height
    yield _row(
        "gaps in the data", "warning", gaps == 0, f"{gaps} stretches of the window have no data and should"
    )


def _unused_fields(site: Site) -> dict[str, Any]:
    """Fields that count tokens and that nothing here reads: seen, not used."""
    files: dict[str, list[str]] = {}
    for landing in site.landings():
        for name in landing.unused_fields:
            files.setdefault(f"{landing.format}: {name}", []).append(landing.path)
    shown = "; ".join(
        f"{name} ({len(paths):,} files, such as {paths[0]})" for name, paths in sorted(files.items())
    )
    return _row(
        "every field that counts tokens is used",
        "warning",
        not files,
        f"seen, not used: {shown}" if files else "none was seen in the first records that no format reads",
    )


def _strays(site: Site) -> Iterator[dict[str, Any]]:
    """Rows so far from the bulk that their clock is in doubt; a site that keeps history has no one span."""
    span = None if site.keeps_history else audited_span(site.chosen(), site.warehouse.window)
    told = span.told() if span else ""
    detail = told or "no row lies far from the bulk"
    yield _row("rows lie close together in time", "warning", not told, detail)


def _unknowns(site: Site) -> Iterator[dict[str, Any]]:
    served = site.warehouse.scan(REQUESTS).filter(is_served())
    names = {
        "token counts": pl.col("usage_origin") != "missing",
        "cache reads": pl.col("cache_read_tokens").is_not_null(),
        "durations": pl.col("duration_ms").is_not_null(),
        "time to first token": pl.col("ttft_ms").is_not_null(),
        "team": pl.col("team").is_not_null(),
        "prompt hashes": pl.col("prefix_hashes").is_not_null() | pl.col("prompt_hash").is_not_null(),
    }
    known = served.select(pl.len().alias("n"), *(rule.sum().alias(name) for name, rule in names.items()))
    counts = known.collect(engine="streaming").row(0, named=True)
    for name in names:
        total, have = counts["n"], counts[name]
        yield _row(f"served calls with known {name}", "info", have == total, f"{have:,} of {total:,}")
    flags = site.warehouse.scan(REQUESTS).select(pl.col("flags").explode().drop_nulls()).collect()["flags"]
    for flag, count in flags.value_counts(sort=True).iter_rows():
        yield _row(
            f"flag {flag}",
            "info",
            passed=False,
            detail=f"{count:,} rows were repaired, assumed or look wrong so",
        )


def _models(site: Site) -> Iterator[dict[str, Any]]:
    """Models that have no curve, peak and sizing of their own: nothing of them is lost, it is told together."""
    calls = site.warehouse.scan(REQUESTS).filter(is_demand())
    counted = calls.select(model_name(), "input_tokens", "output_tokens")
    models = counted.select(pl.col("model").n_unique()).collect().item()
    yield _row(
        "every model has curves of its own",
        "info",
        models <= MOST_MODELS,
        f"{models:,} models; the {MOST_MODELS} with most tokens have their own, the rest is `{OTHER_MODELS}`"
        if models > MOST_MODELS
        else f"{models:,} models",
    )


def _money(site: Site) -> Iterator[dict[str, Any]]:
    lines = site.warehouse.read(COST_LINES)
    unpriced = int(
        lines.filter(pl.col("basis") == "unpriced")
        .group_by("meter")
        .agg(pl.col("requests").sum())["requests"]
        .sum()
    )
    yield _row(
        "calls with a price",
        "warning",
        unpriced == 0,
        f"{unpriced:,} calls have no known price and are in no total",
    )
    requests = site.warehouse.scan(REQUESTS)
    apart = price_disagreement(requests, site.warehouse.recall(UNIT_PRICES)).filter(
        pl.col("reported_to_list_ratio").is_not_null()
        & ((pl.col("reported_to_list_ratio") - 1).abs() > _PRICES_DIFFER_RATIO)
    )
    shown = "; ".join(
        f"{row['model']}: x{row['reported_to_list_ratio']:.3g}" for row in apart.head(5).to_dicts()
    )
    yield _row(
        "reported costs agree with list prices",
        "warning",
        apart.is_empty(),
        f"{apart.height} models differ by more than {_PRICES_DIFFER_RATIO:.0%}"
        + (f" ({shown})" if shown else ""),
    )
