"""Recorded logs and public traces through the whole audit: figures counted beside them when they were made.

What a format's rows add up to is proved in `tests/parsers/`; here the audit states the same, and every line is accounted
for. Sources: Azure LLM inference trace 2023 (Patel et al., Splitwise); Mooncake (FAST'25, table 2); kv-cache-tester's
coding sessions, which hold their own totals; logs of LiteLLM, vLLM and Prometheus recorded under one load.
"""

from __future__ import annotations

import json
import tarfile
import warnings
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from parsers.records import ENGINE_SAMPLES, REQUESTS
from pipelines.audit import run_audit
from pipelines.fleet import Fleet
from pipelines.site import Site
from warehouse.store import Warehouse

pytestmark = pytest.mark.slow


class Audited:
    """The document of an audit, and the folder with its facts."""

    def __init__(self, source: Path, out: Path) -> None:
        self.home = out
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = run_audit(Site(Warehouse(out), (str(source),), Fleet.default(), out))
        self.document = json.loads(report.json.read_text())

    def __getitem__(self, key: str):
        return self.document[key]

    def facts(self, table) -> pl.DataFrame:
        return Warehouse(self.home).scan(table).collect()


@pytest.fixture(scope="module")
def audited(shared, tmp_path_factory):
    """Audit a folder or file below `data` once."""

    @cache
    def run(name: str) -> Audited:
        source = shared / "data" / name
        if not source.exists():
            pytest.skip(f"{name} is not in the shared folder")
        return Audited(source, tmp_path_factory.mktemp("audit"))

    return run


ALL = ["azure2023", "mooncake", "weka", "real/litellm", "real/vllm", "real/prometheus", "real"]


@pytest.mark.parametrize("name", ALL)
def test_every_line_is_accounted_for(audited, name):
    inputs = audited(name)["inputs"]
    parts = ("requests", "samples", "rejects", "other_lines", "duplicates")
    for counts in (inputs, *inputs["by_format"].values()):
        assert counts["lines"] == sum(counts[part] for part in parts)
    assert inputs["lines"] == sum(counts["lines"] for counts in inputs["by_format"].values()) > 0
    assert inputs["rejects"] == 0


@pytest.mark.parametrize("name", ALL)
def test_no_check_of_severity_error_fails(audited, name):
    failed = [
        row for row in audited(name)["data_quality"] if row["severity"] == "error" and not row["passed"]
    ]
    assert failed == []


def test_azure_has_its_requests_and_medians_and_claims_nothing_about_caches(audited):
    found = audited("azure2023")
    rows = found.facts(REQUESTS).with_columns(trace=pl.col("source_file").str.extract(r"_(code|conv)\.csv$"))
    assert dict(rows.group_by("trace").len().iter_rows()) == {"code": 8819, "conv": 19_366}
    medians = rows.filter(pl.col("trace") == "conv").select(pl.median("input_tokens", "output_tokens")).row(0)
    assert medians == (1020, 129)
    tokens = found["tokens"]
    assert tokens["requests_ok"] == tokens["requests_cache_unknown"] == 28_185
    assert [tokens[name] for name in ("uncached_input", "cache_read", "cache_write")] == [None, None, None]
    prefix = found["waste"]["prefix"]
    assert prefix["evidence"]["none"]["requests"] == 28_185
    claims = ("seen_before_tokens", "cache_read_tokens", "missed_tokens", "missed_usd", "token_hit_ratio")
    assert {name: prefix[name] for name in claims} == dict.fromkeys(claims)


def test_mooncake_has_its_means_and_three_hit_ratios_by_name(audited):
    found = audited("mooncake")
    tokens = found["tokens"]
    assert tokens["requests_ok"] == 12_031
    assert (round(tokens["input"] / 12_031), round(tokens["output"] / 12_031)) == (12_035, 343)
    prefix = found["waste"]["prefix"]
    ratios = {name: round(prefix[f"{name}_hit_ratio"], 3) for name in ("block", "token", "mean_request")}
    assert ratios == {"block": 0.366, "token": 0.374, "mean_request": 0.409}
    assert prefix["evidence"]["hash_chain"] == {"requests": 12_031, "input_tokens": tokens["input"]}


def sessions(path: Path):
    """Each document of the archive."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and member.name.endswith(".json"):
                yield json.load(archive.extractfile(member))


def flat(requests: list) -> int:
    """Requests of a session, those of its sub-agents included."""
    return sum(1 + len(item["requests"]) - 1 if "requests" in item else 1 for item in requests)


def test_weka_has_every_request_of_every_session_once(audited, shared):
    """Records that a copied or forked session shares are one record: they are counted as duplicates."""
    found = audited("weka")
    inputs = found["inputs"]
    documents = list(sessions(shared / "data/weka/traces_237.tar.xz"))
    assert inputs["by_format"]["weka_sessions"]["files"] == len(documents) == 237
    told = sum(flat(document["requests"]) for document in documents)
    assert inputs["requests"] + inputs["duplicates"] == told
    rows = found.facts(REQUESTS)
    assert rows.height == inputs["requests"]
    assert rows["record_key"].n_unique() == rows.height
    assert found["tokens"]["input"] == rows["input_tokens"].sum()


def test_litellm_states_what_was_counted_beside_it(audited):
    """414 calls: 379 succeed at once, 15 fail and then succeed, 20 fail for good. The second export is not counted."""
    found = audited("real/litellm")
    rows = found.facts(REQUESTS)
    calls = rows.group_by("call_id").agg(
        failed=(pl.col("status") == "error").any(), served=(pl.col("status") != "error").any()
    )
    assert calls.group_by("failed", "served").len().sort("failed", "served").rows() == [
        (False, True, 379),
        (True, False, 20),
        (True, True, 15),
    ]
    tokens = found["tokens"]
    assert (tokens["input"], tokens["output"]) == (53_866, 13_291)
    assert tokens["requests_ok"] + tokens["requests_cancelled"] == 394
    assert tokens["requests_error"] == 35
    assert tokens["from_response_cache"] == {"requests": 63, "input": 4582, "output": 1487}
    assert str(rows["cost_reported"].sum().normalize()) == "0.03139492"
    assert found["inputs"]["by_format"]["litellm_spend_logs_csv"]["duplicates"] == 412
    assert found["inputs"]["requests"] == 429


def test_litellm_spend_logs_alone_state_theirs(audited):
    found = audited("real/litellm/LiteLLM_SpendLogs.csv.gz")
    tokens = found["tokens"]
    assert found["inputs"]["requests"] == 412
    assert tokens["requests_ok"] + tokens["requests_cancelled"] == 392
    assert (tokens["input"], tokens["output"]) == (49_676, 12_285)
    assert tokens["requests_error"] == 20
    assert tokens["failed_estimated"] == {"requests": 11, "input": 14_167, "output": 0}


def test_what_vllm_generated_is_the_same_in_its_log_and_in_prometheus(audited):
    """18,839 tokens: the log's windows, up to their rounding, and the counter's last value."""
    log = audited("real/vllm")
    assert log["tokens"]["requests_ok"] in (0, None)
    assert log["inputs"]["samples"] == log.facts(ENGINE_SAMPLES).height == 75
    assert log.facts(ENGINE_SAMPLES)["window_generation_tokens"].sum() == pytest.approx(18_839, abs=20)
    counters = audited("real/prometheus")
    assert counters.facts(ENGINE_SAMPLES)["generation_tokens_total"].max() == 18_839
    assert counters["window"]["start"] is not None


def test_all_recorded_logs_together_say_the_same_and_list_what_is_unknown(audited):
    """Files of no known format are listed, not fatal; rows of a clock of their own (2000-01-01) are left out, and told."""
    whole, litellm = audited("real"), audited("real/litellm")
    assert whole["tokens"]["input"] == litellm["tokens"]["input"]
    assert whole["inputs"]["by_format"]["unknown"]["files"] == whole["inputs"]["files_with_problems"] > 0
    checks = {row["check"]: row for row in whole["data_quality"]}
    assert checks["files that could be read whole"]["passed"] is False
    assert (
        "2000-01-01 lie more than 31 days from the bulk"
        in checks["rows lie close together in time"]["detail"]
    )
    assert whole["window"]["start"].startswith("2026-11-30")
