"""An option is confirmed or refuted by the busiest moment's own arrivals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.fleet import Slo
from pipelines.sizing.moments import busiest_moments
from pipelines.sizing.replay import confirm as confirming
from pipelines.sizing.replay.confirm import confirm

START = datetime(2026, 11, 16, tzinfo=UTC)
SLO = Slo(ttft_p95_ms=1000, tpot_p95_ms=50)


@pytest.fixture(scope="module")
def burst():
    """An hour of a call a second, with a minute of a hundred a second in its middle; a tenth without counts."""
    quiet = np.arange(0, 3600, 1.0)
    busy = 1800 + np.arange(0, 60, 0.01)
    seconds = np.sort(np.concatenate([quiet, busy]))
    rows = {
        "started_at": [START + timedelta(seconds=float(second)) for second in seconds],
        "ended_at": [START + timedelta(seconds=float(second) + 2) for second in seconds],
        "status": ["ok"] * len(seconds),
        "model_served": ["chat"] * len(seconds),
        "input_tokens": [1000] * len(seconds),
        "output_tokens": [None if number % 10 == 0 else 100 for number in range(len(seconds))],
    }
    return REQUESTS.conform(pl.DataFrame(rows)).lazy()


def option(replicas: int):
    return {
        "model": "Llama 3.1 8B",
        "accelerator": "H100 SXM5 80GB",
        "count": replicas,
        "replicas": replicas,
        "precision": "bf16",
    }


def test_the_busiest_minute_tells_whether_an_option_holds(burst):
    """One replica does not carry it, six do; what was not counted is said."""
    moments = busiest_moments(burst, {"chat": "pool"})["pool"].moments
    told = {replicas: confirm(burst, ["chat"], option(replicas), moments[:1], SLO)[0] for replicas in (1, 6)}
    assert told[1].holds is False
    assert told[6].holds is True
    assert told[6].calls > 5000
    assert told[6].left_out > 500
    assert told[1].ttft_ms_p95 > 1000 > told[6].ttft_ms_p95
    assert told[6].window_s == 300


def test_a_moment_of_too_many_calls_is_replayed_for_less_long(burst, monkeypatch):
    """The time around it shrinks, not the moment itself."""
    monkeypatch.setattr(confirming, "MOST_CALLS", 6200)
    moments = busiest_moments(burst, {"chat": "pool"})["pool"].moments
    (told,) = confirm(burst, ["chat"], option(6), moments[:1], SLO)
    assert told.window_s == 60
    assert told.holds is True


def test_a_pool_without_calls_tells_nothing(burst):
    """None is unknown."""
    moments = busiest_moments(burst, {"chat": "pool"})["pool"].moments
    (told,) = confirm(burst, ["other"], option(1), moments[:1], SLO)
    assert (told.calls, told.holds, told.ttft_ms_p95) == (0, None, None)
