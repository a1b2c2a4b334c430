"""Meters that write for a screen: dates as people write them, tables without a clock, samples over many lines."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import meters
from parsers.errors import SiteConfigError
from parsers.format import Context, Head
from parsers.registry import load

WRITTEN = datetime(2026, 3, 8, 12, 0, 0, tzinfo=UTC)
TEXT_METERS = (
    "nvidia_smi_dmon",
    "nvidia_smi_table",
    "rocm_smi_table",
    "npu_smi_info",
    "amd_smi_csv",
    "xpu_smi_csv",
    "tegrastats",
    "powermetrics",
    "ipmi_power",
)
DMON = "# gpu    pwr     sm\n# Idx      W      %\n    0    300     90\n    0    310     91\n"


def rows(name, text, *, split=None, **options):
    """All samples of a text as the format reads it, in one chunk or in two."""
    fmt = load(name)
    lines = text.split("\n")
    frame = pl.DataFrame(
        {"source_line": range(1, len(lines) + 1), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )
    context = Context("meter.txt", None, modified_at=WRITTEN, options=options, head=text)
    chunks = [frame] if split is None else [frame[:split], frame[split:]]
    mapped = [fmt.map(chunk, context) for chunk in chunks if chunk.height]
    assert [part.height for part in mapped] == [chunk.height for chunk in chunks if chunk.height]
    last = fmt.finish(context)
    found = pl.concat([*mapped, *([last] if last.height else [])], how="diagonal_relaxed")
    return found.filter(~pl.col("_other")).sort("source_line")


def recorded(shared, relative):
    path = shared / "facts/samples" / relative
    if not path.is_file():
        pytest.skip(f"{relative} is not in the shared folder")
    return path


@pytest.mark.parametrize(
    ("name", "relative", "power_w", "utilisation"),
    [
        ("nvidia_smi_dmon", "nvidia_smi/h200_590.48.01.dmon.load.txt", [630, 628, 629, 632, 630], [1.0] * 5),
        ("nvidia_smi_dmon", "nvidia_smi/rtx2080s_595.71.05.dmon.load.txt", [98] * 5, [0.08] * 5),
        ("npu_smi_info", "npu_smi/info_watch.shape.txt", [90.5, 90.7], [0.0, 0.41]),
        ("tegrastats", "jetson/tegrastats.shape.txt", [5.13, 4.09, None], [0.12, 0.1, None]),
    ],
)
def test_recorded_output_gives_what_it_shows(shared, name, relative, power_w, utilisation):
    path = recorded(shared, relative)
    assert load(name).recognise(Head(path.name, path.read_bytes()))
    found = rows(name, path.read_text())
    assert found["_reject"].null_count() == found.height
    assert found["power_w"].to_list() == power_w
    assert found["utilisation_ratio"].to_list() == utilisation


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Mon Nov 30 18:27:54 UTC 2026", "2026-11-30 18:27:54+0000"),
        ("Mon Nov  2 06:27:54 PM UTC 2026", "2026-11-02 18:27:54+0000"),
        ("Mon Nov  2 12:27:54 AM CST 2026", "2026-11-02 00:27:54"),
        ("Mon 30 Nov 2026 06:27:54 PM CET", "2026-11-30 18:27:54"),
        ("*** Sampled system activity (Fri Sep  4 17:15:14 2015 +1000) (5009.63ms elapsed) ***",
         "2015-09-04 17:15:14+1000"),
        ("Every 1.0s: npu-smi info          host: Mon Mar  2 18:00:30 2026", "2026-03-02 18:00:30"),
        ("2026年 11月 30日 星期一 18:27:54 CST", "2026-11-30 18:27:54"),
        ("2026年 3月 2日 星期一 08:27:54 CST", "2026-03-02 08:27:54"),
        ("2026-03-02T08:01:39.331095044Z stdout F # gpu", "2026-03-02T08:01:39.331095044Z"),
        ("[2026-03-02 08:01:39] 300 W", "2026-03-02 08:01:39"),
        ("2026/03/02 08:01:39.250, 0, 300", "2026/03/02 08:01:39.250"),
        ("1772445600 0 300", "1772445600"),
        ("1772445600.25,card0,300", "1772445600.25"),
        ("    0    630     53     41", None),
        ("see 2026-03-02 for more", None),
        ("Monday 30 files 2026", None),
        ("17724456001772445600", None),
    ],
)  # fmt: skip
def test_stamps(line, told):
    assert pl.select(meters.stamp(pl.lit(line))).item() == told


def test_an_origin_and_an_interval_say_when_ticks_were():
    found = rows("nvidia_smi_dmon", DMON, origin="2026-03-01T00:00:00Z", interval_s="0.5")
    assert found["at"].to_list() == [
        datetime(2026, 3, 1, tzinfo=UTC),
        datetime(2026, 3, 1, 0, 0, 0, 500_000, tzinfo=UTC),
    ]
    assert found["flags"].to_list() == [["device_is_index"]] * 2


def test_ticks_after_a_line_of_date_are_counted_from_it():
    found = rows("nvidia_smi_dmon", "Mon Mar  2 10:00:00 UTC 2026\n" + DMON)
    assert [at.second for at in found["at"]] == [0, 1]
    assert found["flags"].to_list() == [["device_is_index"], ["interval_assumed", "device_is_index"]]


def test_a_time_of_day_takes_its_day_from_a_line_of_date_before():
    text = "Sun Mar  1 10:00:00 UTC 2026\n#Time gpu pwr\n 23:59:59 0 300\n 00:00:01 0 301\n"
    found = rows("nvidia_smi_dmon", text, timezone="UTC")
    assert found["at"].to_list() == [
        datetime(2026, 3, 1, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 3, 2, 0, 0, 1, tzinfo=UTC),
    ]
    assert found["flags"].to_list() == [["device_is_index"]] * 2


def test_a_time_of_day_later_than_the_files_last_change_is_of_the_day_before():
    found = rows("nvidia_smi_dmon", "#Time gpu pwr\n 13:00:00 0 300\n", timezone="UTC")
    assert found["at"].item() == datetime(2026, 3, 7, 13, tzinfo=UTC)


@pytest.mark.parametrize("interval", ["0", "-1", "soon", "nan", "inf"])
def test_an_interval_that_is_none_is_refused(interval):
    with pytest.raises(SiteConfigError, match="not a number of seconds"):
        rows("nvidia_smi_dmon", DMON, interval_s=interval)


def texts_of(name):
    from pathlib import Path

    return [path.read_text() for path in sorted((Path(__file__).parent / "cases" / name).glob("*/input.*"))]


@pytest.mark.parametrize("name", TEXT_METERS)
def test_where_a_chunk_ends_does_not_matter(name):
    for text in texts_of(name):
        whole = rows(name, text)
        assert whole.height
        for split in range(1, len(text.split("\n")), 3):
            parts = rows(name, text, split=split)
            assert parts.select(sorted(parts.columns)).equals(whole.select(sorted(whole.columns))), split


@settings(max_examples=40)
@given(st.sampled_from(TEXT_METERS), st.data())
def test_damaged_output_is_read_without_a_crash(name, data):
    text = data.draw(st.sampled_from(texts_of(name)))
    at = data.draw(st.integers(0, len(text)))
    noise = data.draw(st.text(max_size=8))
    rows(name, text[:at] + noise + text[at + data.draw(st.integers(0, 20)) :])


@pytest.mark.parametrize("name", TEXT_METERS)
@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 100_000 + "Watts # gpu device,",
        "RAM 1/1MB " * 20_000,
        "device," * 30_000,
        "# gpu        pid  type    sm   mem\n# Idx          #   C/G     %     %\n    0      12345     C    90    8\n",
        "timestamp, power.draw [W], utilization.gpu [%]\n2024/04/03 10:52:50.449, 30.70 W, 0 %\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
        "INFO 03-02 08:01:39 RAM cleanup done, EMC off, 300 Watts were saved\n",
    ],
)
def test_other_output_is_not_claimed(name, text):
    assert not load(name).recognise(Head("x", text.encode()))
