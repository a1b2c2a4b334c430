"""Logs of engines: the same rows whatever the chunks, heads that several engines could claim, durations."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.detect import matching
from parsers.durations import milliseconds
from parsers.format import Context, Head
from parsers.records import REQUESTS
from parsers.registry import load
from parsers.sources import find_sources, read_head

CASES = Path(__file__).parent / "cases"
TEXTS = ["ollama_log", "xinference_log", "tensorrt_llm_log", "tgi_log", "mindie_log", "lmdeploy_log"]
LINES = sorted(
    {
        line
        for name in TEXTS
        for path in (CASES / name).glob("*/input.log")
        for line in path.read_text().split("\n")
    }
)


def frame(lines):
    return pl.DataFrame(
        {"source_line": range(1, len(lines) + 1), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )


def mapped(name, lines, chunk):
    """All chunks of a log, one after the other."""
    fmt, context, raw = load(name), Context("logs/server.log", None), frame(lines)
    parts = [fmt.map(raw.slice(at, chunk), context) for at in range(0, raw.height, chunk)]
    return pl.concat(parts, how="diagonal_relaxed")


@pytest.mark.parametrize("name", ["ollama_log", "xinference_log", "tgi_log", "mindie_log"])
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_chunks_of_any_size_give_the_same_rows(name, chunk):
    for path in (CASES / name).glob("*/input.log"):
        lines = path.read_text().removesuffix("\n").split("\n")
        whole, parts = mapped(name, lines, len(lines)), mapped(name, lines, chunk)
        assert parts.select(whole.columns).equals(whole)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.lists(st.sampled_from(LINES) | st.text(max_size=60), min_size=1, max_size=12),
    st.data(),
)
def test_any_text_is_counted_and_breaks_nothing(name, lines, data):
    cut = [line[: data.draw(st.integers(0, len(line)))] for line in lines]
    found = mapped(name, cut, data.draw(st.sampled_from([1, 5, 50])))
    assert found["source_line"].to_list() == list(range(1, len(cut) + 1))
    kept = found.filter(~pl.col("_other") & pl.col("_reject").is_null())
    if load(name).target is REQUESTS and not kept.is_empty():
        REQUESTS.conform(kept.with_columns(source_format=pl.lit("x"), source_file=pl.lit("x")))


def test_calls_that_overlap_share_the_tokens_of_the_tasks_that_ended():
    """Two tasks, two calls: none is counted twice, none is lost, and a short call gets no long task."""

    def task(number, seconds, prompt, output):
        return [
            f"slot print_timing: id 0 | task {number} | prompt eval time = 10.00 ms / {prompt} tokens",
            f"slot print_timing: id 0 | task {number} | eval time = {seconds * 1000}.00 ms / {output} tokens",
        ]

    def call(took):
        return f'[GIN] 2026/08/01 - 07:02:00 | 200 | {took} | ::1 | POST "/api/chat"'

    lines = [*task(1, 30, 100, 7), *task(2, 2, 200, 8), call("2.5s"), call("31s"), call("31s")]
    rows = mapped("ollama_log", lines, 2).filter(~pl.col("_other"))
    assert rows.select("input_tokens", "output_tokens").rows() == [(200, 8), (100, 7), (None, None)]


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        ("tgi/router.shape.log", "tgi_log"),
        ("lmdeploy/stat_lines.shape.log", "lmdeploy_log"),
        ("mindie/mindie-ms_11_202411061400.log", "mindie_log"),
        ("trtllm/iter_lines.shape.log", "tensorrt_llm_log"),
        ("trtllm/metrics_iteration_stats.shape.json", "trtllm_iteration_stats"),
    ],
)
def test_samples_are_claimed_by_their_format_alone(shared, sample, name):
    source = find_sources([shared / "facts/samples" / sample])[0]
    assert [fmt.name for fmt in matching(read_head(source))] == [name]


@pytest.mark.parametrize(
    "text",
    [
        # A gateway that uses Gin, too; another program with Go's log lines; a trace of another engine.
        '[GIN] 2026/08/01 - 07:02:00 | 200 | 2.5s | ::1 | POST "/v1/chat/completions"\n',
        "time=2026-08-01T07:01:13.100Z level=INFO msg=started\n",
        '{"timestamp":"2026-08-01T07:01:13Z","level":"INFO","target":"my_router","span":{}}\n',
        '{"model":"m","created_at":"2026-08-01","usage":{"prompt_tokens":1}}\n',
        "2026-08-01 07:01:13,000 app.core 5 INFO     Generate finished, request_id: x\n",
    ],
)
def test_other_logs_are_not_claimed_for_an_engines(text):
    assert not {fmt.name for fmt in matching(Head("x", text.encode()))} & {
        "ollama_log",
        "ollama_response",
        "tgi_log",
        "tgi_log_jsonl",
        "xinference_log",
        "llamacpp_log",
    }


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1.207305s", 1207.305),
        ("566.1µs", 0.5661),
        ("566.1μs", 0.5661),
        ("86ns", 0.000086),
        ("4m54s", 294_000.0),
        ("1h2m3.5s", 3_723_500.0),
        ("33.1ms", 33.1),
        ("0s", 0.0),
        ("5", None),
        ("soon", None),
        ("1s later", None),
    ],
)
def test_durations_name_their_unit(text, ms):
    assert pl.select(milliseconds(pl.lit(text))).item() == ms
