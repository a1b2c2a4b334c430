"""Local clocks, years that a stamp lacks, and the lists of what was assumed."""

# Local times have no zone: that is what is tested.
# ruff: noqa: DTZ001

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers import clock
from parsers.format import Context


def test_repeated_hour_takes_the_earlier_instant_and_a_skipped_one_is_none():
    local = clock.LocalClock.of(Context("x", None, options={"timezone": "Europe/Berlin"}))
    frame = pl.DataFrame(
        {"t": [datetime(2026, 10, 25, 2, 30), datetime(2026, 3, 29, 2, 30), datetime(2026, 7, 1)]}
    )
    found = frame.select(at=local.at(pl.col("t")), twice=local.ambiguous(pl.col("t")))
    assert found["at"].to_list() == [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
        None,
        datetime(2026, 6, 30, 22, tzinfo=UTC),
    ]
    assert found["twice"].to_list() == [True, False, False]


@given(
    written=st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),
    # A year less the day of grace: at exactly 364 days the stamp of this year is allowed, and is taken.
    age=st.timedeltas(timedelta(0), timedelta(days=364) - timedelta(seconds=1)),
)
def test_stamps_of_the_last_year_get_back_the_year_they_lost(written, age):
    happened = (written - age).replace(microsecond=0)
    frame = pl.DataFrame({"stamp": [happened.strftime("%m-%d %H:%M:%S")]})
    utc = clock.LocalClock("UTC", assumed=True)
    found = frame.select(clock.naive_before(pl.col("stamp"), written.replace(tzinfo=UTC), utc)).item()
    assert found == happened


def test_a_stated_year_is_that_of_the_first_line():
    frame = pl.DataFrame({"stamp": ["12-31 23:59:59", "01-01 00:00:00", "02-30 00:00:00"]})
    found = frame.select(clock.naive_in_stated_year(pl.col("stamp"), 2025, "12-30 10:00:00")).to_series()
    assert found.to_list() == [datetime(2025, 12, 31, 23, 59, 59), datetime(2026, 1, 1), None]


@given(st.integers(1, 4_102_444_800_000_000))
def test_unix_seconds_keep_microseconds(microseconds):
    """Seconds as Prometheus writes them are exact to the microsecond until 2100."""
    text = f"{microseconds // 1_000_000}.{microseconds % 1_000_000:06d}"
    found = pl.select(clock.unix_seconds(pl.lit(text))).item()
    assert found == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


@pytest.mark.parametrize("text", ["", "x", "NaN", "inf", "-1", "1796047635000"])
def test_other_numbers_are_no_unix_seconds(text):
    assert pl.select(clock.unix_seconds(pl.lit(text))).item() is None


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-05-12T08:01:39.331095944Z", datetime(2026, 5, 12, 8, 1, 39, 331_095, tzinfo=UTC)),
        ("2026-05-12T08:01:39+0800", datetime(2026, 5, 12, 0, 1, 39, tzinfo=UTC)),
        ("2026-05-12 08:01:39,5+08:00", datetime(2026, 5, 12, 0, 1, 39, 500_000, tzinfo=UTC)),
        ("2026-05-12T08:01:39", None),
    ],
)
def test_iso_instants_need_an_offset(text, instant):
    assert pl.select(clock.iso_instant(pl.lit(text))).item() == instant


@given(st.lists(st.tuples(*[st.sampled_from([True, False, None])] * 3), min_size=1, max_size=5))
def test_flag_lists_equal_a_plain_reading(conditions):
    names = ["first", "second", "third"]
    frame = pl.DataFrame(conditions, schema=dict.fromkeys(names, pl.Boolean), orient="row")
    found = frame.select(clock.flag_list({name: pl.col(name) for name in names})).to_series()
    assert found.to_list() == [[n for n, c in zip(names, row, strict=True) if c] for row in conditions]
