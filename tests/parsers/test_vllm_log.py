"""vLLM server logs: the recorded log adds up to the engine's counter; clocks, windows, hostile text."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import clock
from parsers.errors import SiteConfigError
from parsers.format import Context, Head
from parsers.formats.vllm_log import FORMAT

STAT = (
    "(APIServer pid=7) INFO {} [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: {} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, "
    "Prefix cache hit rate: 5.0%"
)
WRITTEN = datetime(2026, 11, 30, 15, tzinfo=UTC)


def mapped(lines, *, first_line=1, modified_at=WRITTEN, head=None, **options):
    frame = pl.DataFrame(
        {"source_line": range(first_line, first_line + len(lines)), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )
    text = "\n".join(lines) if head is None else head
    return FORMAT.map(
        frame, Context("logs/server.log", None, modified_at=modified_at, options=options, head=text)
    )


def rows(mapped_frame):
    return mapped_frame.filter(~pl.col("_other") & pl.col("_reject").is_null())


@pytest.fixture(scope="module")
def recorded(shared):
    path = shared / "data/real/vllm/server.stdout.log.gz"
    if not path.is_file():
        pytest.skip("the recorded vLLM log is not in the shared folder")
    text = gzip.decompress(path.read_bytes()).decode("utf-8", errors="replace")
    return text.removesuffix("\n").split("\n")


def test_generation_tokens_of_the_recorded_log_equal_the_engines_counter(recorded):
    """vllm:generation_tokens_total ended at 18,839."""
    found = rows(mapped(recorded))
    assert found["window_generation_tokens"].sum() == pytest.approx(18_839, abs=1e-6)
    assert found["window_s"].unique().to_list() == [10.0]


def test_prompt_rate_of_the_recorded_version_counts_computed_tokens_only(recorded):
    """Prompt tokens 205,141 less cached ones 188,768 are 16,373; rates are rounded to 0.1 tokens/s."""
    found = rows(mapped(recorded))
    assert found["window_prompt_tokens"].sum() == pytest.approx(
        205_141 - 188_768, abs=0.05 * 10 * found.height
    )
    assert found["flags"].list.contains("prompt_rate_excludes_cached").all()


def test_every_line_of_the_recorded_log_is_counted_once(recorded):
    found = mapped(recorded)
    assert found["source_line"].to_list() == list(range(1, len(recorded) + 1))
    kinds = found.select(
        other=pl.col("_other").sum(), rejects=(pl.col("_reject").is_not_null() & ~pl.col("_other")).sum()
    ).row(0)
    assert (len(recorded), rows(found).height, *kinds) == (8373, 75, 8298, 0)


def test_recorded_log_names_model_and_instance_and_keeps_no_text(recorded):
    found = rows(mapped(recorded))
    assert found["model"].unique().to_list() == ["tiny-qwen"]
    assert found["instance"].unique().to_list() == ["pid-16137"]
    texts = {name for name, kind in found.schema.items() if kind == pl.String}
    assert texts == {"instance", "model", "_reject"}


def test_recorded_log_read_in_two_chunks_gives_the_same_samples(recorded):
    """Only the mark of a chunk's first line differs: nothing but the usual interval speaks for its window."""
    head = "\n".join(recorded)[: 256 << 10]
    whole = rows(mapped(recorded, head=head))
    parts = [
        mapped(recorded[:4000], head=head),
        mapped(recorded[4000:], first_line=4001, head=head),
    ]
    assert pl.concat(rows(part) for part in parts).drop("flags").equals(whole.drop("flags"))


def test_recognition_needs_vllms_own_records():
    assert FORMAT.recognise(Head("x", STAT.format("05-19 10:13:11", "1.0").encode()))
    assert FORMAT.recognise(Head("x", b"INFO 05-11 18:04:22 [async_llm.py:255] Added request chatcmpl-1.\n"))
    quoted = '{"id": "1", "messages": "' + STAT.format("05-19 10:13:11", "1.0") + '"}\n'
    assert not FORMAT.recognise(Head("x", quoted.encode()))
    sglang = b"[2026-04-05 20:02:49] Prefill batch, #new-seq: 1, #new-token: 10, #cached-token: 0\n"
    assert not FORMAT.recognise(Head("x", sglang))
    assert not FORMAT.recognise(Head("x", b'INFO:     10.0.0.1:1 - "GET /metrics HTTP/1.1" 200 OK\n'))


def test_year_comes_from_the_modification_time_also_across_new_year():
    found = rows(
        mapped(
            [STAT.format("12-31 23:59:55", "1.0"), STAT.format("01-01 00:00:05", "1.0")],
            modified_at=datetime(2027, 1, 1, 9, tzinfo=UTC),
        )
    )
    assert found["at"].to_list() == [
        datetime(2026, 12, 31, 23, 59, 55, tzinfo=UTC),
        datetime(2027, 1, 1, 0, 0, 5, tzinfo=UTC),
    ]
    assert found["flags"].to_list()[0][:2] == [clock.ZONE_ASSUMED, clock.YEAR_FROM_MTIME]


def test_leap_day_is_put_into_a_leap_year():
    found = rows(mapped([STAT.format("02-29 10:00:00", "1.0")], modified_at=datetime(2027, 3, 1, tzinfo=UTC)))
    assert found["at"].to_list() == [datetime(2024, 2, 29, 10, tzinfo=UTC)]


def test_without_any_year_the_line_is_rejected_with_the_remedy():
    assert "option year" in mapped([STAT.format("03-01 10:00:00", "1.0")], modified_at=None)["_reject"][0]


@pytest.mark.parametrize(
    ("option", "value"), [("timezone", "Mars/Base"), ("timezone", "../etc"), ("year", "26")]
)
def test_wrong_options_are_errors_that_name_the_option(option, value):
    with pytest.raises(SiteConfigError, match=f"option {option}"):
        mapped([STAT.format("03-01 10:00:00", "1.0")], **{option: value})


def test_window_is_the_gap_if_it_is_near_the_interval_and_the_interval_after_a_silence():
    times = ["10:00:00", "10:00:10", "10:00:21", "10:00:34", "10:05:00", "10:05:10", "10:05:20"]
    found = rows(mapped([STAT.format(f"03-01 {time}", "1.0") for time in times]))
    assert found["window_s"].to_list() == [10.0, 10.0, 10.0, 13.0, 10.0, 10.0, 10.0]
    nominal = found["flags"].list.contains("window_nominal").to_list()
    assert nominal == [True, False, False, False, True, False, False]


def test_interval_set_by_the_site_is_found():
    found = rows(mapped([STAT.format(f"03-01 10:{minute:02d}:00", "2.0") for minute in range(5)]))
    assert found["window_generation_tokens"].to_list() == [120.0] * 5


def test_a_prompt_that_imitates_a_record_is_not_read():
    fake = STAT.format("03-01 10:00:00", "999999.0")
    request = "(APIServer pid=7) INFO 03-01 10:00:00 [request_logger.py:65] "
    lines = [request + f"Received request 1: prompt: '{fake}'", request + fake.split("] ", 1)[1]]
    assert mapped(lines)["_other"].all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 59),
            st.decimals(0, 90_000, places=1),
            st.sampled_from(["", "\x1b[32m", "2026-03-01T10:00:00.5Z ", "50% 1/2 [00:04<00:04]"]),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=60), max_size=4
    ),
)
def test_rates_equal_those_of_a_plain_reading(samples, noise):
    lines = [
        prefix + STAT.format(f"03-01 10:00:{second:02d}", rate) for second, rate, prefix in samples
    ] + noise
    found = mapped(lines)
    expected = [
        float(match[1])
        for line in lines
        if (match := re.search(r"loggers.*Avg generation throughput: ([\d.]+) tokens/s", line))
    ]
    assert found.height == len(lines)
    assert rows(found)["generation_tokens_per_s"].to_list() == expected
