"""Prefixes of containers and collectors: what the program wrote is left, with the instant and the service."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.containers import bare, unwrapped

AT = datetime(2026, 1, 2, 3, 4, 5, 250000, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05.25Z"
TEXT = 'INFO 01-02 03:04:05 [x.py:1] said "hello" \\ and went'


def in_json_file(text):
    return json.dumps({"log": text + "\n", "stream": "stdout", "time": STAMP}, separators=(",", ":"))


def carried(**fields):
    return json.dumps(fields)


def read(*lines):
    frame = pl.DataFrame({"source_line": range(1, len(lines) + 1), "line": lines})
    return unwrapped(frame, pl.lit(value=True)).rows()


@pytest.mark.parametrize(
    ("line", "at", "service"),
    [
        (TEXT, None, None),
        (in_json_file(TEXT), AT, None),
        (f"{STAMP} {TEXT}", AT, None),
        (f"{STAMP} stdout F {TEXT}", AT, None),
        (f"{STAMP}   #033[2m2026-01-02T03:04:05Z#033[0m {TEXT}", AT, None),
        (f"[pod/llm-0/engine] {TEXT}", None, "llm-0"),
        (f"[pod/llm-0/engine] {STAMP} {TEXT}", AT, "llm-0"),
        (f"llm-1   | {TEXT}", None, "llm-1"),
        (f"llm-1   | {STAMP} {TEXT}", AT, "llm-1"),
        (f"Jan  2 03:04:05 host llama-server[7]: {TEXT}", None, None),
        (f"Jan  2 03:04:05   ollama[]: {TEXT}", None, None),
        (f"2026-01-02T04:04:05.25+0100 host ollama[7]: {TEXT}", AT, None),
        (f"1767323045250\t{STAMP}\t{TEXT}", AT, None),
        (carried(log=TEXT, stream="stdout", time=STAMP, kubernetes={"pod_name": "llm-0"}), AT, "llm-0"),
        (carried(message=TEXT, kubernetes={"pod": {"name": "llm-0"}}, **{"@timestamp": STAMP}), AT, "llm-0"),
        (carried(labels={"pod": "llm-0"}, line=TEXT, timestamp=STAMP), AT, "llm-0"),
        (
            carried(MESSAGE=TEXT, _SYSTEMD_UNIT="llm.service", __REALTIME_TIMESTAMP="1767323045250000"),
            AT,
            "llm.service",
        ),
        (
            carried(textPayload=f"{TEXT}\n", resource={"labels": {"pod_name": "llm-0"}}, timestamp=STAMP),
            AT,
            "llm-0",
        ),
        (carried(date=1767323045.25, log=f"{STAMP} stdout F {TEXT}"), AT, None),
        (carried(log=TEXT, time="2026-01-02 03:04:05"), None, None),
    ],
)
def test_every_prefix_is_taken_off(line, at, service):
    assert read(line) == [(1, TEXT, at, service)]
    assert bare(line) == TEXT


@pytest.mark.parametrize(
    "line", ["slot print_timing: id 0", "srv  update_slots: idle", "a | b", "{", "[GIN] x", ""]
)
def test_what_only_looks_like_a_prefix_stays(line):
    text = line.removeprefix("a | ")
    assert read(line)[0][1] == bare(line) == text


def test_records_of_a_collector_without_line_feeds_are_no_parts_of_each_other():
    lines = [carried(log=f"{n}", stream="stdout", time=STAMP).replace(": ", ":") for n in range(3)]
    assert [row[1] for row in read(*lines)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "line",
    [
        carried(level="info", message="what a program wrote as JSON", model="m"),
        carried(level="info", labels={}, msg="no field of a collector"),
        '{"log": "cut',
    ],
)
def test_objects_that_carry_no_line_stay(line):
    assert read(line)[0][1] == bare(line) == line


def test_a_collector_may_have_read_the_line_as_json():
    line = carried(log={"model": "m", "usage": None}, stream="stdout", time=STAMP)
    assert read(line) == [(1, bare(line), AT, None)]
    assert json.loads(bare(line)) == {"model": "m", "usage": None}


def test_colours_are_no_text():
    assert bare("\x1b[32mINFO\x1b[0m x") == read("\x1b[32mINFO\x1b[0m x")[0][1] == "INFO x"


def test_of_a_line_cut_into_parts_only_the_first_is_a_line():
    parts = [
        f"{STAMP} stdout P a",
        f"{STAMP} stdout F b",
        in_json_file("c").replace("\\n", ""),
        in_json_file("d"),
    ]
    assert [line for _, line, *_ in read(*parts, "e")] == ["a", "c", "e"]


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
        | st.sampled_from(['{"log":"x', "{}"])
    )
)
def test_any_line_is_read(lines):
    assert len(read(*lines, "end")) <= len(lines) + 1
    assert all(isinstance(bare(line), str) for line in lines)
