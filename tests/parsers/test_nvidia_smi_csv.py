"""nvidia-smi CSV: units, missing values, local time, devices without a name, captures of real GPUs."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.format import Context, Head
from parsers.formats.nvidia_smi_csv import BY_ORDER, FORMAT

HEADER = "timestamp, uuid, power.draw [W], utilization.gpu [%], memory.used [MiB]"


def mapped(text, *, first_line=1, head=None, **options):
    lines = text.split("\n")
    frame = pl.DataFrame(
        {"source_line": range(first_line, first_line + len(lines)), "line": lines},
        schema={"source_line": pl.Int64, "line": pl.String},
    )
    return FORMAT.map(frame, Context("gpu.csv", None, options=options, head=text if head is None else head))


def rows(frame):
    return frame.filter(~pl.col("_other") & pl.col("_reject").is_null())


@pytest.mark.parametrize(
    ("name", "power_w", "utilisation", "used_mib"),
    [
        ("h200_590.48.01", 627.40, 1.0, 32_362),
        ("h100mig_590.48.01", 433.78, None, 11_125),
        ("rtx2080s_595.71.05", 111.50, 0.08, 819),
    ],
)
def test_captures_of_real_gpus(shared, name, power_w, utilisation, used_mib):
    """The captures hold comments around header and line; MIG leaves utilisation at [N/A]: unknown, not 0."""
    path = shared / f"facts/samples/nvidia_smi/{name}.query_gpu.load.csv.txt"
    if not path.is_file():
        pytest.skip("the captures of nvidia-smi are not in the shared folder")
    assert FORMAT.recognise(Head(path.name, path.read_bytes()))
    found = rows(mapped(path.read_text()))
    assert found.select("power_w", "utilisation_ratio", "memory_used_bytes").row(0) == (
        power_w,
        utilisation,
        used_mib * 2**20,
    )
    assert found.height == 1


@pytest.mark.parametrize(
    "text",
    [
        "# gpu    pwr  gtemp  mtemp     sm    mem\n    0    630     53     41    100      8\n",
        "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n",
        "Time,gpu0,gpu1\n1785542400000,301 W,1.02 kW\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
        '{"power.draw": 1}\n',
    ],
)
def test_other_tables_are_not_claimed(text):
    assert not FORMAT.recognise(Head("x", text.encode()))


@pytest.mark.parametrize("nothing", ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "-", ""])
def test_missing_values_are_unknown_and_zero_is_zero(nothing):
    found = rows(mapped(f"{HEADER}\n2026/01/02 03:04:05.123, GPU-a, {nothing}, 0 %, 0 MiB"))
    assert found.select("power_w", "utilisation_ratio", "memory_used_bytes").row(0) == (None, 0.0, 0.0)


def test_time_zone_is_an_option_and_its_absence_is_flagged():
    text = f"{HEADER}\n2026/07/02 03:04:05.123, GPU-a, 1 W, 0 %, 0 MiB"
    given_zone, assumed = rows(mapped(text, timezone="Europe/Berlin")), rows(mapped(text))
    assert given_zone["at"].to_list() == [datetime(2026, 7, 2, 1, 4, 5, 123_000, tzinfo=UTC)]
    assert assumed["at"].to_list() == [datetime(2026, 7, 2, 3, 4, 5, 123_000, tzinfo=UTC)]
    assert (given_zone["flags"].to_list(), assumed["flags"].to_list()) == ([[]], [["zone_assumed_utc"]])


def test_lines_of_a_later_chunk_take_the_header_from_the_files_beginning():
    line = "2026/01/02 03:04:06.123, GPU-a, 5 W, 0 %, 0 MiB"
    assert rows(mapped(line, first_line=900, head=f"{HEADER}\n{line}"))["power_w"].to_list() == [5.0]
    assert "no header names the columns" in mapped(line)["_reject"][0]


def test_a_header_may_change_within_a_file():
    text = (
        f"{HEADER}\n2026/01/02 03:04:05.123, GPU-a, 1 W, 0 %, 0 MiB\n"
        "power.draw [mW], timestamp, uuid\n2500 mW, 2026/01/02 03:05:05.123, GPU-a\n"
    )
    assert rows(mapped(text))["power_w"].to_list() == [1.0, 2.5]


def test_gpus_without_a_name_are_told_apart_by_their_order_so_that_power_adds_up():
    """Four GPUs, 5 ms apart, every second: their power is a sum of four, not a mean over one device."""
    lines = [
        f"2024/04/05 06:17:{second:02d}.{100 + 5 * gpu}, {100 + gpu}.00 W, 0 %, 0 %"
        for second in range(5)
        for gpu in range(4)
    ]
    found = rows(
        mapped("\n".join(["timestamp, power.draw [W], utilization.gpu [%], utilization.memory [%]", *lines]))
    )
    mean = found.group_by("device").agg(pl.col("power_w").mean()).sort("device")
    assert mean.rows() == [("0", 100.0), ("1", 101.0), ("2", 102.0), ("3", 103.0)]
    assert found["flags"].list.contains(BY_ORDER).all()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.decimals(0, 1500, places=2), st.integers(0, 100), st.integers(0, 200_000)
        ),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
    st.sampled_from([", ", ",", '","']),
)
def test_values_equal_those_of_a_plain_reading(samples, with_units, separator):
    """With and without units, any separator; a device's second line in one instant is no sample."""
    quote = '"' if separator == '","' else ""
    watt, percent, mib = (" W", " %", " MiB") if with_units else ("", "", "")
    text, expected = [HEADER if with_units else "timestamp,uuid,power.draw,utilization.gpu,memory.used"], {}
    for second, power, share, used in samples:
        cells = (
            f"2026/01/02 03:04:0{second}.000",
            "GPU-a",
            f"{power}{watt}",
            f"{share}{percent}",
            f"{used}{mib}",
        )
        text.append(quote + separator.join(cells) + quote)
        expected.setdefault(second, (float(power), share / 100, used * 2**20))
    found = mapped("\n".join(text))
    assert found.height == len(text)
    values = rows(found).select(pl.col("at").dt.second(), "power_w", "utilisation_ratio", "memory_used_bytes")
    assert {row[0]: row[1:] for row in values.iter_rows()} == expected
