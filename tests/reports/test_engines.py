"""What the report says of engines: their own counts, beside those of gateways and never added to them."""

from __future__ import annotations

import json
from datetime import timedelta

import polars as pl
import pytest

from reports.audit_json import AuditInputs, audit_document
from reports.engines import ENGINES_SCHEMA, engine_sentences
from tests.reports.conftest import START
from warehouse import tables

GENERATED = 18_839
"""What the engine of the recording generated, by its log and by its counter."""


def engines(*rows: dict) -> pl.DataFrame:
    base = {
        "source_format": "metrics",
        "model": "M",
        "samples": 9,
        "first_at": START + timedelta(minutes=10),
        "last_at": START + timedelta(minutes=70),
        "basis": "counters",
        "counted": True,
    }
    return pl.DataFrame([base | row for row in rows], schema=ENGINES_SCHEMA)


def usage(*rows: tuple[int, int, bool | None]) -> pl.DataFrame:
    """Output by hour: (hour, tokens, from the response cache)."""
    base = {"model": "m", "status": "ok", "usage_origin": "reported", "requests": 1}
    unknown = {"requests_usage_missing": 0, "requests_cache_unknown": 0}
    return tables.USAGE_HOURLY.conform(
        pl.DataFrame(
            [
                base
                | unknown
                | {
                    "hour_at": START + timedelta(hours=hour),
                    "output_tokens": tokens,
                    "response_cache_hit": cached,
                }
                for hour, tokens, cached in rows
            ],
            infer_schema_length=None,
        )
    )


def test_engines_stand_beside_what_gateways_logged_in_the_same_hours():
    """Of four hours two are compared; an answer of the gateway's own cache never reached an engine."""
    told = engines(
        {"instance": "a", "generated_tokens": 70.0},
        {"instance": "b", "generated_tokens": 40.0},
        {"instance": "pid", "generated_tokens": 110.0, "counted": False, "basis": "windows"},
    )
    logged = usage((-1, 1000, None), (0, 60, False), (1, 40, None), (1, 500, True), (2, 1000, None))
    document = audit_document(AuditInputs(title="x", engines=told, usage_hourly=logged))
    assert document["engines_against_gateway"] == [
        {
            "model": "M",
            "hours": 2,
            "engine_generated_tokens": 110,
            "gateway_output_tokens": 100,
            "difference_tokens": 10,
        }
    ]
    assert document["tokens"]["output"] is None
    assert len(engine_sentences(document)) == 4
    assert "10 more at the engines" in engine_sentences(document)[-1]


def test_unknown_stays_unknown():
    document = audit_document(AuditInputs(title="x", engines=engines({"instance": None, "basis": None})))
    [entry] = document["engines"]
    assert entry["generated_tokens"] is None
    assert document["engines_against_gateway"] == []
    assert "no token counts" in engine_sentences(document)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sources", "series"),
    [
        (("vllm",), {("vllm_log", True)}),
        (("vllm", "prometheus"), {("vllm_log", False), ("prometheus_query_range", True)}),
    ],
)
def test_the_recorded_engine_generated_the_same_by_its_log_and_by_its_counter(
    shared, command, tmp_path, sources, series
):
    """A log alone gives its tokens; with the counter beside it they are two series of one engine."""
    folders = [shared / "data" / "real" / name for name in sources]
    ran = command("audit", *folders, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    document = json.loads((tmp_path / "out" / "audit.json").read_text("utf-8"))
    assert {(row["source_format"], row["counted"]) for row in document["engines"]} == series
    assert {row["generated_tokens"] for row in document["engines"]} == {GENERATED}
    assert document["tokens"]["output"] is None
    assert "18,839 tokens generated" in (tmp_path / "out" / "audit.html").read_text("utf-8")
