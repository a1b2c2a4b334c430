"""Which day a row belongs to, and which days an audit is about."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest

from parsers.errors import SiteConfigError
from parsers.records import REQUESTS
from pipelines.ingest.facts import Chosen
from pipelines.ingest.land import Landing
from pipelines.ingest.span import audited_span
from pipelines.site import parse_window
from warehouse.store import Warehouse

MIDNIGHT = dt.datetime(2026, 11, 17, tzinfo=dt.UTC)


def landing(target: str = "requests", **days: int) -> Landing:
    """A landing with rows on days given like `d2026_11_16=3`."""
    counted = {name[1:].replace("_", "-"): rows for name, rows in days.items()}
    plain = dict.fromkeys(Landing.__dataclass_fields__)
    return Landing(**plain | {"id": "x", "target": target, "rows": sum(counted.values()), "days": counted})  # type: ignore[arg-type]


def span(*landings: Landing, window: str | None = None):
    return audited_span(Chosen(landings, {}), parse_window(window) if window else None)


def test_rows_around_midnight_utc_land_on_their_own_day(tmp_path, ingest, payload, write):
    steps = [
        dt.timedelta(0),
        -dt.timedelta(microseconds=1),
        dt.timedelta(microseconds=1),
        -dt.timedelta(hours=1),
    ]
    lines = [payload(n, MIDNIGHT + step) for n, step in enumerate(steps)]
    ingest(tmp_path / "home", write(tmp_path / "log.jsonl", lines))
    warehouse = Warehouse(tmp_path / "home")
    by_day = {
        str(day): sorted(pl.read_parquet(warehouse.day_file(REQUESTS, day))["request_id"])
        for day in warehouse.days(REQUESTS)
    }
    assert by_day == {"2026-11-16": ["chatcmpl-1", "chatcmpl-3"], "2026-11-17": ["chatcmpl-0", "chatcmpl-2"]}


def test_attempts_are_linked_over_midnight(tmp_path, ingest, payload, write):
    lines = [
        payload(1, MIDNIGHT - dt.timedelta(seconds=2), litellm_call_id="one", status="failure"),
        payload(2, MIDNIGHT + dt.timedelta(seconds=2), litellm_call_id="one"),
    ]
    facts = ingest(tmp_path / "home", write(tmp_path / "log.jsonl", lines))
    linked = facts.requests.select("request_id", "attempt", "retry_of").rows()
    assert linked == [("chatcmpl-1", 1, None), ("chatcmpl-2", 2, "chatcmpl-1")]


def test_doubles_on_both_sides_of_midnight_are_counted_once(tmp_path, ingest, payload, write):
    lines = [payload(n, MIDNIGHT + dt.timedelta(seconds=n - 5)) for n in range(10)]
    write(tmp_path / "logs" / "a.jsonl", lines)
    write(tmp_path / "logs" / "b.jsonl", [*lines, payload(99)], modified=1)
    facts = ingest(tmp_path / "home", tmp_path / "logs")
    assert facts.requests.height == 11
    assert facts.doubles == {"litellm_payload": 10}
    assert facts.accounts() == (21, 21)


@pytest.mark.parametrize(
    "wrong", ["1970-01-02T00:00:00Z", "2286-11-20T00:00:00Z", "2000-01-01T00:00:00Z", "0001-01-02T00:00:00Z"]
)
def test_a_wrong_clock_does_not_stretch_the_days(tmp_path, ingest, payload, write, wrong):
    """Rows far from the bulk are landed and counted, and are in no facts."""
    lines = [payload(n) for n in range(10)] + [
        payload(50, startTime=wrong, endTime=wrong, completionStartTime=wrong)
    ]
    facts = ingest(tmp_path / "home", write(tmp_path / "log.jsonl", lines))
    assert facts.requests["started_at"].dt.year().unique().to_list() == [2026]
    assert facts.requests.height == 10
    assert int(facts.files["rows"].sum()) + int(facts.files["rejects"].sum()) == 11
    assert len(Warehouse(tmp_path / "home").days(REQUESTS)) == 1


def test_the_bulk_is_the_span_with_most_requests():
    found = span(
        landing(d1970_01_01=5, d2026_11_16=100, d2026_12_16=80, d2027_01_17=170),
        landing("engine_samples", d1970_01_01=10_000),
    )
    assert (str(found.first), str(found.last)) == ("2026-11-16", "2026-12-16")
    assert {str(day): rows for day, rows in found.left_out.items()} == {
        "1970-01-01": 10_005,
        "2027-01-17": 170,
    }
    assert "10,175 row(s) on 2 days between 1970-01-01 and 2027-01-17" in found.told()


def test_without_requests_the_samples_decide():
    found = span(landing("engine_samples", d2026_11_16=10), landing("device_samples", d2000_01_01=11))
    assert str(found.first) == "2000-01-01"


def test_nothing_is_left_out_of_a_month_with_holidays():
    found = span(landing(d2026_11_01=1, d2026_12_02=1))
    assert found.told() == ""
    assert (found.last - found.first).days == 31


def test_a_window_decides_where_it_is_given():
    landed = landing(d1970_01_01=5, d2026_11_16=100, d2026_11_17=1)
    found = span(landed, window="1969-12-30..1970-01-01")
    assert (str(found.first), str(found.last), found.told()) == ("1970-01-01", "1970-01-01", "")
    assert span(landed, window="2026-11-16T00:00..2026-11-17T00:00").last == dt.date(2026, 11, 16)
    assert span(landed, window="2024-01-01..2024-12-31") is None
    assert span() is None


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("2026-11-16..2026-11-22", "2026-11-16T00:00:00+00:00", "2026-11-23T00:00:00+00:00"),
        ("20261116..20261122", "2026-11-16T00:00:00+00:00", "2026-11-23T00:00:00+00:00"),
        ("2026-11-16T06:00 .. 2026-11-16T07:00", "2026-11-16T06:00:00+00:00", "2026-11-16T07:00:00+00:00"),
        ("2026-11-16T06:00+02:00..2026-11-16", "2026-11-16T04:00:00+00:00", "2026-11-17T00:00:00+00:00"),
    ],
)
def test_windows(text, first, end):
    assert [instant.isoformat() for instant in parse_window(text)] == [first, end]


@pytest.mark.parametrize(
    "text",
    ["", "..", "2026-11-16", "2026-11-16..", "..2026-11-16", "2026-11-17..2026-11-16", "2026-13-01..2026-13-02", "monday..friday",
     "2026-11-16T01:00..2026-11-16T01:00", "9999-12-30..9999-12-31", "1970-01-01..2286-01-01", "1..2..3"],
)  # fmt: skip
def test_what_is_no_window_is_told_in_one_line(text):
    with pytest.raises(SiteConfigError, match="--window: ") as told:
        parse_window(text)
    assert "\n" not in str(told.value)
