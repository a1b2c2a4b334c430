"""Records that a logger wrote as JSON are read as the text that it would have written."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.log_records import bare, unwrapped

AT = datetime(2026, 1, 2, 3, 4, 5, 250000, tzinfo=UTC)
HEADED = "2026-01-02 03:04:05 vllm.engine INFO said"


def read(*lines):
    frame = pl.DataFrame({"source_line": range(1, len(lines) + 1), "line": lines})
    return unwrapped(frame, pl.lit(value=True)).rows()


def record(**fields):
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("line", "text", "at"),
    [
        (
            record(asctime="2026-01-02 03:04:05,250", levelname="INFO", name="vllm.engine", message="said"),
            HEADED,
            None,
        ),
        (
            record(timestamp="2026-01-02T03:04:05.25Z", level="info", logger="vllm.engine", event="said"),
            HEADED,
            AT,
        ),
        (
            record(
                text="...",
                record={
                    "elapsed": {"seconds": 1},
                    "level": {"name": "INFO"},
                    "message": "said",
                    "name": "vllm.engine",
                    "time": {"repr": "2026-01-02 03:04:05.250000+00:00"},
                },
            ),
            HEADED,
            AT,
        ),
        (
            record(asctime="01-02 03:04:05", levelname="INFO", name="vllm.engine", message="said"),
            "0000-01-02 03:04:05 vllm.engine INFO said",
            None,
        ),
        (record(ts=1767323045.25, level="INFO", msg="INFO 01-02 said"), "INFO 01-02 said", AT),
        (
            record(level="INFO", name="root", message="[2026-01-02 03:04:05] said"),
            "[2026-01-02 03:04:05] said",
            None,
        ),
    ],
)
def test_a_record_becomes_text(line, text, at):
    assert bare(line) == text
    assert read(line) == [(1, text, at, None)]


def test_a_containers_prefix_is_taken_off_first_and_its_fields_are_kept():
    line = record(levelname="INFO", name="vllm.engine", asctime="2026-01-02 04:04:05,1", message="said")
    behind = f"2026-01-02T03:04:05.25Z stdout F {line}"
    inside = record(log=f"{line}\n", stream="stdout", time="2026-01-02T03:04:05.25Z").replace('": ', '":')
    merged = record(
        **json.loads(line), kubernetes={"pod_name": "p"}, **{"@timestamp": "2026-01-02T03:04:05.25Z"}
    )
    text = HEADED.replace("03:04", "04:04")
    assert [bare(each) for each in (behind, inside, merged)] == [text] * 3
    assert [row[1:] for row in read(behind, inside, merged)] == [
        (text, AT, None),
        (text, AT, None),
        (text, AT, "p"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        record(message="no level"),
        record(level="info", msg=""),
        record(level="info", msg={"a": 1}, model="m").replace('{"a": 1}', "[]"),
        '{"level": "info", "message": "cut',
        '{"a": {"level": "info"}, "message": }',
        'said {"level": "info", "message": "x"}',
    ],
)
def test_what_is_no_record_stays(line):
    assert bare(line) == line


@given(
    st.lists(
        st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]))
        | st.sampled_from(['{"level": "x", "message": "\\ud800"}', '{"level":"a","message":"b"}', "{}"])
    )
)
def test_any_line_is_read(lines):
    assert len(read(*lines, "end")) <= len(lines) + 1
    assert all(isinstance(bare(line), str) for line in lines)
