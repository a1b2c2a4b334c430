"""Unevenness of arrivals."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.demand.burstiness import burstiness, within_hour_dispersion
from pipelines.demand.coverage import coverage
from pipelines.demand.series import MINUTE_US


def of(requests):
    return burstiness(requests, coverage(requests))


def test_poisson_arrivals_are_near_one_and_even_arrivals_near_zero(facts):
    rng = np.random.default_rng(0)
    random = of(facts(*({"at": float(at)} for at in np.sort(rng.uniform(0, 7200, 3000)))))
    assert random.requests == 3000
    assert random.minute_dispersion == pytest.approx(1, abs=0.35)
    assert random.interarrival_cv2 == pytest.approx(1, abs=0.15)
    assert random.busiest_hour_cv2 == pytest.approx(1, abs=0.2)
    even = of(facts(*({"at": 2.0 * n} for n in range(600))))
    assert even.interarrival_cv2 == pytest.approx(0)
    assert even.busiest_hour_cv2 == pytest.approx(0)


def test_batches_raise_every_figure(facts):
    batches = of(facts(*({"at": 100.0 * (n // 10)} for n in range(400))))
    assert batches.minute_dispersion > 3
    assert batches.interarrival_cv2 > 5


def test_rhythm_of_the_day_is_left_out_within_hours():
    rng = np.random.default_rng(1)
    starts = np.sort(np.concatenate((rng.uniform(0, 3600e6, 60), rng.uniform(3600e6, 7200e6, 6000)))).astype(
        np.int64
    )
    minutes = np.arange(120) * MINUTE_US
    assert within_hour_dispersion(starts, minutes) == pytest.approx(1, abs=0.35)


def test_too_little_to_tell_is_none(facts):
    single = of(facts({"at": 5}))
    assert single.requests == 1
    assert single.minute_dispersion is None
    assert single.interarrival_cv2 is None
    nothing = of(facts())
    assert nothing.requests == 0
    assert nothing.within_hour_dispersion is None
