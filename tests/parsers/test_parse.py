"""The one path of all formats: what does not fit or breaks a rule is a reject with its reason, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from parsers import parse as parse_module
from parsers.format import Format
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, REQUESTS, Column


def engine_format(map_rows):
    return Format(
        name="test_text",
        title="test",
        written_by="test",
        target=ENGINE_SAMPLES,
        container="text",
        recognised_by="",
        recognise=lambda _: True,
        map=map_rows,
    )


def samples(frame, _):
    """Lines `minute ratio`, `# comment` and `! reason`."""
    words = pl.col("line").str.split(" ").list
    return frame.select(
        "source_line",
        at=pl.lit("2026-01-01 00:")
        .add(words.get(0, null_on_oob=True))
        .str.to_datetime("%Y-%m-%d %H:%M", strict=False, time_zone="UTC"),
        kv_usage_ratio=words.get(1, null_on_oob=True).cast(pl.Float64, strict=False),
        running=pl.lit(1),
        _reject=pl.when(pl.col("line").str.starts_with("! ")).then(pl.col("line").str.slice(2)),
        _other=pl.when(pl.col("line").str.starts_with("# ")).then(pl.lit(value=True)),
    )


TEXT = "00 0.5\n# comment\n01 1.5\n! refused here\n02 -0.1\nxx 0.5\n\n03 1\n"


def test_rows_that_break_a_rule_of_the_contract_are_rejects_with_that_rule(read):
    """Only those: the others of the chunk stay."""
    found = read(TEXT, "input.log", fmt=engine_format(samples))
    assert found.rows["source_line"].to_list() == [1, 8]
    assert found.rows["running"].to_list() == [1.0, 1.0]
    assert found.rows["flags"].to_list() == [[], []]
    assert found.reasons == {
        3: "kv_usage_ratio is above 1",
        4: "refused here",
        5: "kv_usage_ratio is below 0",
        6: "at is missing",
        7: "at is missing",
    }
    assert found.other_lines == 1
    assert found.lines == 8


def test_every_rule_of_every_record_table_refuses_a_row():
    """Rules are taken from the declarations, so a new column brings its own."""
    for table in (REQUESTS, ENGINE_SAMPLES, DEVICE_SAMPLES):
        for column in table.columns:
            for text, bad in broken_values(column):
                rows = pl.DataFrame({"source_line": [7]}, schema={"source_line": pl.Int64})
                whole = rows.with_columns(
                    good_value(other).alias(other.name)
                    for other in table.columns
                    if other.name != "source_line"
                )
                kept, refused = parse_module._by_the_rules(whole.with_columns(bad.alias(column.name)), table)
                if column.name in parse_module._ORIGIN:
                    continue
                assert (kept.height, refused) == (0, {7: text})
                assert parse_module._by_the_rules(whole, table)[1] == {}


def good_value(column: Column):
    if column.nullable:
        return pl.lit(None, dtype=column.dtype)
    if column.allowed:
        return pl.lit(column.allowed[0])
    if column.dtype == pl.String:
        return pl.lit("x")
    return pl.lit(0).cast(column.dtype)


def broken_values(column: Column):
    if not column.nullable:
        yield f"{column.name} is missing", pl.lit(None, dtype=column.dtype)
    if column.minimum is not None:
        yield f"{column.name} is below {column.minimum:g}", pl.lit(column.minimum - 1).cast(column.dtype)
    if column.maximum is not None:
        yield f"{column.name} is above {column.maximum:g}", pl.lit(column.maximum + 1).cast(column.dtype)
    if column.allowed:
        yield f"{column.name} is none of {', '.join(column.allowed)}", pl.lit("no such word")


def test_values_that_the_declared_type_can_not_hold_are_rejects(read):
    """A value is never cut to fit, and one bad row never costs the chunk."""

    def map_rows(frame, context):
        return samples(frame, context).with_columns(
            model=pl.col("source_line"),
            running=pl.when(pl.col("source_line") == 1).then(pl.lit("many")).otherwise(pl.lit("2")),
        )

    found = read("00 0.1\n01 0.2\n", "input.log", fmt=engine_format(map_rows))
    assert found.reasons == {1: "running is out of range"}
    assert found.rows["running"].to_list() == [2.0]
    assert found.rows["model"].to_list() == ["2"]


def test_a_format_that_loses_records_is_a_fault_of_the_program(read):
    with pytest.raises(ValueError, match="made 0 rows of 8 records"):
        read(TEXT, "input.log", fmt=engine_format(lambda frame, context: samples(frame, context).head(0)))


def test_small_chunks_give_the_same_rows_and_rejects(read, monkeypatch):
    """Whatever the size of chunks: lines, reasons and offsets stay."""
    whole = read(TEXT * 20, "input.log", fmt=engine_format(samples))
    monkeypatch.setattr("parsers.readers.SPOOL_BYTES", 40)
    monkeypatch.setattr(parse_module, "CHUNK_BYTES", 1)
    parts = read(TEXT * 20, "input.log", fmt=engine_format(samples))
    assert parts.rows.equals(whole.rows)
    assert parts.rejects.equals(whole.rejects)
    assert parts.other_lines == whole.other_lines == 20
    assert whole.lines == 160


def test_a_chunk_holds_only_its_own_rejects(read, tmp_path, monkeypatch):
    """A file of nothing but rejects is never held as a whole."""
    monkeypatch.setattr("parsers.readers.SPOOL_BYTES", 400)
    monkeypatch.setattr(parse_module, "CHUNK_BYTES", 1)
    sizes = []
    real = parse_module.Explainer.rejects

    def counted(self, reasons):
        sizes.append(len(reasons))
        return real(self, reasons)

    monkeypatch.setattr(parse_module.Explainer, "rejects", counted)
    found = read("! bad\n" * 1000, "input.log", fmt=engine_format(samples))
    assert found.rejects.height == 1000
    assert max(sizes) < 100


def test_source_and_format_stand_in_every_row_and_reject(read):
    found = read(TEXT, "input.log", fmt=replace(engine_format(samples), name="renamed"))
    for frame in (found.rows, found.rejects):
        assert set(frame["source_format"]) == {"renamed"}
        assert set(frame["source_file"]) == {"input.log"}


def test_empty_file(read):
    found = read("", "input.log", fmt=engine_format(samples))
    assert (found.lines, found.rejects.height) == (0, 0)


@pytest.mark.parametrize("year", ["0001", "1969", "2286", "9999"])
def test_an_instant_of_no_log_refuses_its_record(read, year):
    """Arithmetic on it would overflow, and a partition of its own would be made for it."""

    def dated(frame, _):
        at = pl.col("line").str.to_datetime("%Y-%m-%d", time_zone="UTC", strict=False)
        return frame.select("source_line", at=at, _reject=pl.lit(None, pl.String), _other=pl.lit(value=False))

    found = read(f"{year}-06-01\n2026-06-01\n", "input.log", fmt=engine_format(dated))
    assert found.reasons == {1: "at is out of range"}
    assert found.rows["source_line"].to_list() == [2]
