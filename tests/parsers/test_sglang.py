"""SGLang's log and exported requests: windows, ranks, restarts and chunks; what is not taken at its word."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.format import Context, Head
from parsers.formats.sglang_log import FORMAT as LOG
from parsers.formats.sglang_requests import FORMAT as EXPORT
from parsers.records import ENGINE_SAMPLES

BEGIN = datetime(2026, 3, 1, 10, tzinfo=UTC)
SERVER = "[2026-03-01 10:00:00] server_args=ServerArgs(model_path='m/x', served_model_name='{}', dp_size=1)"


def prefill(second, new, cached, tags=" TP0"):
    stamp = f"{BEGIN + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}"
    return (
        f"[{stamp}{tags}] Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {cached}, "
        "token usage: 0.10, #running-req: 2, #queue-req: 0, cuda graph: False"
    )


def decode(second, rate, tags=" TP0"):
    stamp = f"{BEGIN + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}"
    return (
        f"[{stamp}{tags}] Decode batch, #running-req: 5, #token: 9, token usage: 0.29, "
        f"gen throughput (token/s): {rate:.2f}, #queue-req: 0"
    )


def mapped(lines, chunk=None, **options):
    context = Context("logs/sglang.log", None, options={"timezone": "UTC", **options})
    raw = pl.DataFrame(
        {"source_line": range(1, len(lines) + 1), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )
    size = chunk or max(1, len(lines))
    parts = [LOG.map(raw.slice(at, size), context) for at in range(0, raw.height, size)]
    return pl.concat(parts, how="diagonal_relaxed")


def rows(found):
    return found.filter(~pl.col("_other") & pl.col("_reject").is_null())


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.booleans(),
            st.integers(0, 5000),
            st.integers(0, 900),
            st.sampled_from(["", " TP0", " TP1", " DP0 TP0", " DP1 TP2", " DP1 TP3"]),
        ),
        max_size=30,
    ),
    st.sampled_from([1, 3, 1000]),
)
def test_windows_and_sums_equal_a_plain_walk_over_the_lines(batches, chunk):
    """First rank of each DP rank only; a window is the gap to its last line of the same kind."""
    # Ranks are known from the file's start, as they are where every rank prints every batch.
    ranks = [prefill(0, 0, 0, tags) for tags in (" DP1 TP2", " DP0 TP0", " TP0", "")]
    second, lines, expected, last, hits = 0, list(ranks), [], {}, {}
    chosen = {"": None, " TP0": None, " DP0 TP0": "0", " DP1 TP2": "1"}
    for tags in (" DP1 TP2", " DP0 TP0", " TP0", ""):
        last[chosen[tags], True] = 0
    for gap, is_prefill, amount, cached, tags in batches:
        second += gap
        lines.append(prefill(second, amount, cached, tags) if is_prefill else decode(second, amount, tags))
        if tags not in chosen:
            continue
        engine = chosen[tags]
        before = last.get((engine, is_prefill))
        window = None if before is None else float(second - before)
        last[engine, is_prefill] = second
        hits[engine] = hits.get(engine, 0) + (cached if is_prefill else 0)
        expected.append(
            (
                len(lines),
                window,
                float(amount) if is_prefill else None,
                None if is_prefill or window is None else amount * window,
                float(hits[engine]) if is_prefill else None,
            )
        )
    found = mapped(lines, chunk)
    names = [
        "source_line",
        "window_s",
        "window_prompt_tokens",
        "window_generation_tokens",
        "prefix_cache_hits_total",
    ]
    assert rows(found).filter(pl.col("source_line") > len(ranks)).select(names).rows() == expected
    assert found["source_line"].to_list() == list(range(1, len(lines) + 1))


def test_a_restart_begins_windows_and_counters_again():
    lines = [
        SERVER.format("a"),
        prefill(0, 10, 5),
        decode(1, 50),
        SERVER.format("b"),
        prefill(100, 20, 7),
        decode(101, 50),
    ]
    for chunk in (None, 2, 1):
        found = rows(mapped(lines, chunk))
        assert found["model"].to_list() == ["a", "a", "b", "b"]
        assert found["window_s"].null_count() == 4
        assert found["prefix_cache_hits_total"].drop_nulls().to_list() == [5.0, 7.0]


def test_local_time_is_read_in_the_given_zone():
    found = rows(mapped([prefill(0, 1, 0)], timezone="Asia/Shanghai"))
    assert found["at"].to_list() == [BEGIN - timedelta(hours=8)]


def test_a_containers_stamp_is_the_clock_where_there_is_one():
    """Lines of 2024 without any time become usable in docker."""
    line = "[gpu_id=0] Decode batch. #running-req: 5, token usage: 0.01, gen throughput (token/s): 210.44, #queue-req: 0"
    found = mapped([line, f"2026-03-01T10:00:00.5Z {line}"])
    assert found["_reject"].is_null().to_list() == [False, True]
    assert rows(found)["at"].to_list() == [BEGIN + timedelta(milliseconds=500)]


@pytest.mark.parametrize(
    "text",
    [
        "someone wrote: 'Prefill batch, #new-seq: 1, #new-token: 5'",
        "INFO 03-01 10:00:00 [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s",
        '[2026-03-01 10:00:00] INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK',
    ],
)
def test_other_logs_are_not_claimed(text):
    assert not LOG.recognise(Head("x.log", text.encode()))


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.text(max_size=40) | st.sampled_from([prefill(0, 5, 1), decode(2, 7.5), SERVER.format("x")]),
        max_size=15,
    ),
    st.data(),
)
def test_any_text_is_counted_and_breaks_nothing(lines, data):
    cut = [line[: data.draw(st.integers(0, len(line)))] for line in lines] or [""]
    found = mapped(cut, data.draw(st.sampled_from([1, 4, 50])))
    assert found["source_line"].to_list() == list(range(1, len(cut) + 1))
    whole = rows(found).with_columns(source_format=pl.lit("x"), source_file=pl.lit("x"))
    assert not ENGINE_SAMPLES.problems(ENGINE_SAMPLES.conform(whole))


def exported(read, *records):
    lines = [{"request_parameters": "{}", "weight_version": "default", **record} for record in records]
    return read("".join(json.dumps(line) + "\n" for line in lines), fmt=EXPORT)


def test_stage_times_of_another_clock_are_not_used(read):
    """Versions differ: prefill_finished_time may be seconds since the machine was started."""
    base = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "e2e_latency": 2.0,
        "request_received_ts": 1767000000.0,
    }
    result = exported(
        read,
        {**base, "id": "a", "prefill_finished_time": 1767000000.5},
        {**base, "id": "b", "prefill_finished_time": 81234.5},
        {**base, "id": "c", "prefill_finished_time": 1767009999.5},
    )
    assert result.rows["ttft_ms"].to_list() == [500.0, None, None]


def test_cached_tokens_that_are_not_reported_stay_unknown(read):
    base = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "e2e_latency": 2.0,
        "request_received_ts": 1767000000.0,
    }
    result = exported(read, {**base, "id": "a"}, {**base, "id": "b", "cached_tokens": 0})
    assert result.rows["cache_read_tokens"].to_list() == [None, 0]


def test_no_text_of_a_prompt_is_kept(read):
    record = {
        "id": "a",
        "request_parameters": json.dumps({"text": "a secret prompt", "stream": True}),
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "e2e_latency": 2.0,
        "request_received_ts": 1767000000.0,
    }
    row = exported(read, record).rows.row(0, named=True)
    assert row["prefix_token_counts"] == [5]
    assert "secret" not in str(row)
