"""Scrapes as text: the recorded ones of llama.cpp, chunks, labels, times, hostile heads."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.detect import matching
from parsers.format import Context, Head
from parsers.formats import prometheus_text as text
from parsers.hashing import PromptHasher
from parsers.parse import _checked
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES
from parsers.samples import series_labels
from parsers.sources import find_sources


def increase(rows, column):
    values = rows.sort("at")[column].drop_nulls().to_list()
    return sum(now - before if now >= before else now for before, now in pairwise(values))


def claims(content):
    return [fmt.name for fmt in matching(Head("x", content.encode()))]


@pytest.mark.parametrize(
    ("column", "grown", "run_a"),
    [
        ("prompt_tokens_total", 32_359, 11_721),
        ("cached_prompt_tokens_total", 119_166, 21_677),
        ("generation_tokens_total", 17_008, 2_236),
    ],
)
def test_recorded_scrapes_add_up_over_restarts(shared, tmp_path, read_source, column, grown, run_a):
    """Case B137: an engine's own counters are what a gateway's tokens are held against.

    The server restarted three times; each scrape stands behind a line that says when it was. 33 of the 278
    scrapes were refused.
    """
    path = shared / "data/real/llamacpp/metrics_scrapes.prom.txt.gz"
    result = read_source(find_sources([path])[0], tmp_path)
    assert (result.format, result.rejects.height) == ("prometheus_text", 0)
    values = result.rows.sort("at")[column].drop_nulls()
    assert values.len() == 245
    assert increase(result.rows, column) == grown
    assert run_a in values.to_list()
    assert result.rows["instance"].unique().to_list() == ["metrics_scrapes"]


@pytest.mark.parametrize(
    ("sample", "name", "rows"),
    [
        ("npu_exporter/prometheus_metrics.prom", "prometheus_text_devices", 32),
        ("sglang/production_metrics.prom", "prometheus_text", 5),
        ("triton_trtllm/readme_metrics.prom", "prometheus_text", 3),
        ("mindie/ms_metricsAggregate4PDSeparateOutput.bin.prom", "prometheus_text", 6),
    ],
)
def test_samples_of_documentation_are_read(shared, tmp_path, read_source, sample, name, rows):
    result = read_source(find_sources([shared / "facts/samples" / sample])[0], tmp_path)
    assert (result.format, result.rows.height, result.rejects.height) == (name, rows, 0)


@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(0, 3))
def test_rows_do_not_depend_on_where_chunks_end(size, seed):
    """Scrapes, parts of a counter and repeated ranks lie across the chunks' borders."""
    lines = []
    for scrape in range(5):
        lines.append(f"# {1_772_445_600 + 15 * scrape}")
        lines += [
            f'vllm:request_success_total{{finished_reason="{reason}",rank="{rank}"}} {scrape + seed + len(reason)}'
            for rank in (0, 1)
            for reason in ("stop", "length")
        ]
        lines += [f'vllm:num_requests_running{{rank="{rank}"}} {scrape}' for rank in (0, 1)]
    whole, parted = (rows_of(lines, each) for each in (len(lines), size))
    assert parted.equals(whole)
    assert whole["running"].drop_nulls().to_list() == [0, 1, 2, 3, 4]
    assert whole["requests_total"].drop_nulls().to_list() == [2 * (scrape + seed) + 10 for scrape in range(5)]


def rows_of(lines, size, modified_at=None):
    fmt, context = text.ENGINES, Context("x", PromptHasher(b"key"), modified_at)
    frame = pl.DataFrame({"source_line": pl.int_range(1, len(lines) + 1, eager=True), "line": lines})
    chunks = [fmt.map(part, context) for part in frame.iter_slices(size)]
    chunks += [last for last in [fmt.finish(context)] if not last.is_empty()]
    kept = [_checked(chunk, fmt, context)[0] for chunk in chunks]
    return pl.concat(kept, how="diagonal_relaxed").sort("source_line")


@pytest.mark.parametrize(
    "line",
    [
        "# scraped at 2026-03-02T10:00:00Z",
        "# 2026-03-02 18:00:00 +0800",
        "=== 2026-03-02T10:00:00.000+00:00 ===",
        "Date: Mon, 02 Mar 2026 10:00:00 GMT",
        "< date: Mon, 02 Mar 2026 10:00:00 GMT",
        "Mon Mar  2 10:00:00 UTC 2026",
        "1772445600",
        "# TIME 1772445600.000",
        "# 1772445600000",
    ],
)
def test_the_ways_to_say_when_a_scrape_was(line):
    rows = rows_of(["llamacpp:requests_processing 1", line, "llamacpp:requests_processing 2"], 10)
    assert rows.select("at", "running").rows() == [(datetime(2026, 3, 2, 10, tzinfo=UTC), 2.0)]


def test_times_inside_of_samples_and_descriptions_are_no_times_of_scrapes():
    lines = [
        "# HELP llamacpp:requests_processing since 2026-03-02T10:00:00Z",
        'build_info{built="2026-03-02T10:00:00Z"} 1',
        "process_start_time_seconds 1772445600.5",
        "llamacpp:requests_processing 1",
    ]
    written = datetime(2026, 3, 8, tzinfo=UTC)
    assert rows_of(lines, 10, written)["at"].to_list() == [written]
    assert rows_of([*lines, "# EOF"], 10, written)["at"].to_list() == [written]
    assert rows_of([*lines, "# EOF", "# 1772445600", lines[-1]], 10, written)["at"].to_list() != [written]
    assert rows_of(lines, 10).is_empty()


@pytest.mark.parametrize(
    ("series", "labels"),
    [
        ("up", {"__name__": "up"}),
        ("up{}", {"__name__": "up"}),
        ('{"my.metric", "a.b"="x"}', {"__name__": "my.metric", "a.b": "x"}),
        ('{__name__="up", a="x"}', {"__name__": "up", "a": "x"}),
        (r'm{a="C:\\DIR\\",b="\"q\"\n",}', {"__name__": "m", "a": "C:\\DIR\\", "b": '"q"\n'}),
        ('m{a="b=\\"c\\", d=e}",f="{}"}', {"__name__": "m", "a": 'b="c", d=e}', "f": "{}"}),
    ],
)
def test_labels_are_read_as_the_exposition_writes_them(series, labels):
    assert series_labels(series) == labels


@settings(max_examples=50)
@given(st.text(max_size=60))
def test_any_series_and_line_is_read_or_refused(noise):
    assert isinstance(series_labels(noise), dict)
    line = noise.replace("\n", " ")
    assert rows_of(["# 1772445600", line, "vllm:num_requests_running" + line], 10).height <= 2


def test_the_names_of_an_engines_files_are_one_engines():
    def instance(source):
        fmt, context = text.ENGINES, Context(source, None, None)
        frame = pl.DataFrame(
            {"source_line": [1, 2], "line": ["# 1772445600", "llamacpp:requests_deferred 0"]}
        )
        return fmt.map(frame, context)["instance"][1]

    assert instance("logs/engine-a_2026-03-02T10:00:00Z.prom") == "engine-a"
    assert instance("logs/engine-a.20260302.prom") == "engine-a"
    assert instance("logs.tar!engine-b-1772445600.prom.gz") == "engine-b"
    assert instance("1772445600.prom") is None


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("# HELP a b\nvllm:num_requests_running 1\n", ["prometheus_text"]),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\nvllm:num_requests_running 1\n', ["prometheus_text_devices"]),
        ("up 1\nlitellm_total_tokens_metric_total 5\n", []),
        ("hello world\n" * 5 + "vllm:num_requests_running 1\n", []),
        ('{"resultType":"matrix"}', []),
    ],
)
def test_only_expositions_with_a_known_metric_are_claimed(content, names):
    assert claims(content) == names


def test_both_targets_are_declared_once():
    assert (text.ENGINES.target, text.DEVICES.target) == (ENGINE_SAMPLES, DEVICE_SAMPLES)
