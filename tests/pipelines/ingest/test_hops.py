"""A call that a proxy, the gateway and the engine logged counts once; traffic of its own stays."""

from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.registry import all_formats
from pipelines.ingest.hops import HOPS, LEAST_ROWS, SLACK_US, seen_elsewhere

GATEWAY, CLIENT, ENGINE, PROXY = range(len(HOPS))
FORMATS = ("litellm_payload", "openai_usage", "llamacpp_log", "nginx_access_log")


SCHEMA = {
    "source_format": pl.String,
    "file_rank": pl.Int64,
    "source_line": pl.Int64,
    "hop": pl.Int64,
    "start_us": pl.Int64,
    "end_us": pl.Int64,
    "input_tokens": pl.Int64,
    "output_tokens": pl.Int64,
    "gateway": pl.String,
    "request_id": pl.String,
    "call_id": pl.String,
}


def log(hop, rows, file_rank=None, took_ms=500):
    """Rows (end in ms, output tokens, perhaps input tokens, perhaps an id) of one hop's log."""
    return pl.DataFrame(
        [
            (
                FORMATS[hop],
                hop if file_rank is None else file_rank,
                line,
                hop,
                (end - took_ms) * 1000,
                end * 1000,
                more[0] if more else None,
                out,
                FORMATS[hop],
                more[1] if len(more) > 1 else None,
                None,
            )
            for line, (end, out, *more) in enumerate(rows, 1)
        ],
        schema=SCHEMA,
        orient="row",
    )


def found(*logs):
    return sorted(seen_elsewhere(pl.concat(logs)).rows())


CALLS = [(1000 * n, 10 + n) for n in range(20)]


def test_every_format_of_calls_names_a_hop():
    assert {fmt.hop for fmt in all_formats()} == set(HOPS)


def test_one_log_alone_has_nothing_elsewhere():
    assert found(log(GATEWAY, CALLS)) == []
    assert found(log(ENGINE, CALLS), log(ENGINE, CALLS, file_rank=9)) == []


def test_an_engines_rows_behind_a_gateway_are_its_calls():
    engine = log(ENGINE, [(end + 130, out) for end, out in CALLS])
    assert found(log(GATEWAY, CALLS), engine) == [(ENGINE, line) for line in range(1, 21)]


def test_a_proxys_rows_without_counts_are_paired_by_their_ends():
    proxy = log(PROXY, [(end - end % 1000, None) for end, _ in CALLS])
    assert found(log(GATEWAY, CALLS), proxy) == [(PROXY, line) for line in range(1, 21)]


def test_three_hops_leave_one():
    logs = [log(GATEWAY, CALLS), log(ENGINE, CALLS), log(PROXY, [(end, None) for end, _ in CALLS])]
    assert len(found(*logs)) == 40


def test_without_a_gateway_the_engine_stays_and_the_proxy_goes():
    logs = [log(ENGINE, CALLS), log(PROXY, [(end, None) for end, _ in CALLS])]
    assert {rank for rank, _ in found(*logs)} == {PROXY}


def test_what_reached_the_engine_past_the_gateway_stays():
    beside = [(500 + 1000 * n, 700 + n) for n in range(4)]
    rows = found(log(GATEWAY, CALLS), log(ENGINE, CALLS + beside))
    assert rows == [(ENGINE, line) for line in range(1, 21)]


def test_logs_of_different_traffic_are_both_kept():
    other = [(end + 300, out + 500) for end, out in CALLS]
    assert found(log(GATEWAY, CALLS), log(ENGINE, other)) == []
    later = [(end + 10**7, out) for end, out in CALLS]
    assert found(log(GATEWAY, CALLS), log(ENGINE, later)) == []


def test_two_gateways_in_a_row_are_told_by_counts_alone():
    """The fuller log stays; bare arrivals of another gateway are its own traffic."""
    first = log(GATEWAY, [*CALLS, (99_000, 5)])
    second = log(GATEWAY, [(end + 40, out) for end, out in CALLS], file_rank=7)
    renamed = second.with_columns(source_format=pl.lit("new_api_logs"))
    assert found(first, renamed) == [(7, line) for line in range(1, 21)]
    assert found(first, renamed.with_columns(output_tokens=pl.lit(None, pl.Int64))) == []


def test_few_rows_without_counts_are_no_evidence():
    few = [(end, None) for end, _ in CALLS[: LEAST_ROWS - 1]]
    assert found(log(GATEWAY, CALLS), log(PROXY, few)) == []


def test_one_row_stands_for_one_row():
    """A gateway's call pairs with one row of the engine, not with each that is near."""
    twice = [(end, out) for end, out in CALLS for _ in range(2)]
    assert found(log(GATEWAY, CALLS), log(ENGINE, twice)) == []
    assert len(found(log(GATEWAY, twice), log(ENGINE, twice))) == 40


def test_unrelated_logs_of_one_output_are_both_kept():
    """Classifiers and embeddings answer alike: what they were asked tells them apart."""
    gateway = [(500 * n, 1, 200 + n % 7) for n in range(1200)]
    client = [(2000 * n, 1, 5000 + n) for n in range(300)]
    assert found(log(GATEWAY, gateway), log(CLIENT, client)) == []


@pytest.mark.parametrize("per_s", [2, 50, 200, 400])
def test_unrelated_logs_are_both_kept_however_busy(per_s):
    rng = random.Random(per_s)
    gateway = [
        (rng.randrange(60_000), rng.randrange(1, 300), rng.randrange(50, 4000)) for _ in range(60 * per_s)
    ]
    client = [(rng.randrange(60_000), rng.randrange(1, 300), rng.randrange(50, 4000)) for _ in range(400)]
    assert found(log(GATEWAY, gateway), log(CLIENT, client)) == []


@pytest.mark.parametrize("per_s", [2, 50, 200])
def test_one_traffic_is_found_however_busy(per_s):
    """An engine counts the chat template on top of the gateway's count."""
    rng = random.Random(per_s)
    gateway = [
        (rng.randrange(60_000), rng.randrange(1, 300), rng.randrange(50, 4000)) for _ in range(60 * per_s)
    ]
    same = [(end + rng.randrange(20, 90), out, sent) for end, out, sent in gateway]
    assert len(found(log(GATEWAY, gateway), log(ENGINE, same))) == len(gateway)
    if per_s < 200:
        more = [(end, out, sent + 11) for end, out, sent in same]
        assert len(found(log(GATEWAY, gateway), log(ENGINE, more))) >= 0.95 * len(gateway)


def test_a_log_that_states_starts_alone_is_paired_by_them():
    bodies = log(CLIENT, [(end, out) for end, out in CALLS], took_ms=30_000)
    bodies = bodies.with_columns(end_us=pl.lit(None, pl.Int64))
    assert len(found(log(GATEWAY, CALLS, took_ms=30_000), bodies)) == 20
    assert found(log(GATEWAY, CALLS, took_ms=90_000), bodies) == []


def test_rows_of_one_identity_are_one_call_whatever_their_times():
    """A transcript states a message when its first block came; the gateway when the call began and ended."""
    gateway = [(1000 * n, 40, 900, f"msg_{n}") for n in range(8)]
    transcript = [(1000 * n + 25_000, 40, 900, f"msg_{n}") for n in range(3, 12)]
    rows = found(log(GATEWAY, gateway, took_ms=40_000), log(CLIENT, transcript))
    assert rows == [(CLIENT, line) for line in range(1, 6)]


def test_bare_numbers_and_far_times_are_no_identity():
    numbers = [(90_000 * n, 40 + n, 900, str(n)) for n in range(8)]
    moved = [(end + 30_000, out + 1, sent, name) for end, out, sent, name in numbers]
    assert found(log(GATEWAY, numbers), log(CLIENT, moved)) == []
    reused = [(end, out, sent, f"request-{name}") for end, out, sent, name in numbers]
    later = [(end + 4_000_000, out, sent, name) for end, out, sent, name in reused]
    assert found(log(GATEWAY, reused), log(CLIENT, later)) == []


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0, 0.15))
def test_pairs_are_as_many_as_a_plain_search_finds(seed, dropped):
    """Same output, ends within the slack, each row once: the most pairs there can be, as starting from the earliest finds."""
    rng = random.Random(seed)
    gateway = [(rng.randrange(600_000), rng.randrange(4), 1000) for _ in range(40)]
    engine = [(end + rng.randrange(-1900, 1900), *rest) for end, *rest in gateway if rng.random() > dropped]
    rng.shuffle(engine)
    left = sorted(gateway)
    pairs = 0
    for end, out, _ in sorted(engine):
        near = [call for call in left if call[1] == out and abs(call[0] - end) * 1000 <= SLACK_US]
        if near:
            left.remove(min(near))
            pairs += 1
    got = len(found(log(GATEWAY, gateway), log(ENGINE, engine)))
    assert got in (0, pairs)
    assert got == pairs or pairs < 0.8 * len(engine)


@pytest.mark.parametrize("outputs", [[None], [0], []])
def test_odd_logs_are_answered(outputs):
    assert (
        found(log(GATEWAY, [(0, out) for out in outputs]), log(ENGINE, [(0, out) for out in outputs])) == []
    )
