"""CSV: quotes, line breaks, delimiters and damage, read by DuckDB or plainly with the same result."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import csv_reader
from parsers.csv_cells import sniff_delimiter
from parsers.format import Format
from parsers.readers import MiscountError
from parsers.records import REQUESTS
from parsers.sources import find_sources, lay_down

FORMAT = Format(
    name="test",
    title="test",
    written_by="test",
    target=REQUESTS,
    container="csv",
    recognised_by="",
    recognise=lambda _: True,
    map=lambda frame, _: frame,
    embedded={"meta": {"n": "VARCHAR", "list": ["VARCHAR"]}},
)


def tidy(cell):
    """Cells without space around them, as all formats read them; blank is null."""
    return cell.strip(" ") or None if isinstance(cell, str) else cell


def read(data, folder, *, strictly=False):
    """(rows with their line, bad lines with reasons, other lines)."""
    path = Path(folder) / "input.csv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    laid = lay_down(find_sources([path])[0], Path(folder))
    rows, bad, other = [], {}, 0
    for raw in csv_reader.read_csv(FORMAT, laid, Path(folder), strictly=strictly):
        rows += [{k: tidy(v) for k, v in row.items()} for row in raw.frame.to_dicts()]
        bad.update(raw.bad_lines)
        other += raw.other_lines
    return rows, bad, other


def cells(rows):
    return {row["source_line"]: tuple(v for k, v in row.items() if k != "source_line") for row in rows}


@pytest.fixture
def plainly(monkeypatch):
    """Have every spool read without DuckDB."""
    monkeypatch.setattr(
        csv_reader,
        "_read_spool",
        lambda fmt, shape, spool, count, rows: csv_reader._read_plainly(fmt, shape, spool),
    )


HOSTILE = (
    'id,text\n1,"two\nlines"\n2,"say ""hi"""\n3,5" disk\n4,"never closed\n5,fine\n\n6,"a,b"\n7\n8,x,y\n9,""\n10,"x"y\n'
    '11,"\r\nquoted break"\n12, "a,b"\n13,last'
)


@pytest.mark.parametrize("mode", ["duckdb", "plainly"])
def test_hostile_records(tmp_path, mode, request):
    """A break inside a quoted cell joins lines; a stray or unclosed quote costs at most the line it stands on."""
    if mode == "plainly":
        request.getfixturevalue("plainly")
    rows, bad, other = read(HOSTILE, tmp_path)
    assert cells(rows) == {
        2: ("1", "two\nlines"),
        4: ("2", 'say "hi"'),
        5: ("3", '5" disk'),
        7: ("5", "fine"),
        9: ("6", "a,b"),
        12: ("9", None),
        14: ("11", "\r\nquoted break"),
        16: ("12", "a,b"),
        17: ("13", "last"),
    }
    assert bad == {
        6: "the record is no CSV: unexpected end of data",
        10: "the record has 1 cells, the header has 2",
        11: "the record has 3 cells, the header has 2",
        13: "the record is no CSV: ',' expected after '\"'",
    }
    assert other == 2


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_delimiters_line_ends_and_bom(tmp_path, delimiter, ending, bom):
    lines = [delimiter.join(row) for row in (["id", "n", "x"], ["1", "", "a b"], ["2", "3", "ü"])]
    data = bom + ending.join([*lines, ""]).encode()
    wanted = [
        {"id": "1", "n": None, "x": "a b", "source_line": 2},
        {"id": "2", "n": "3", "x": "ü", "source_line": 3},
    ]
    assert read(data, tmp_path) == (wanted, {}, 1)
    assert read(data, tmp_path, strictly=True) == (wanted, {}, 1)


def test_a_file_without_quotes_is_read_as_it_is_and_damage_is_found_strictly(tmp_path):
    good = "id,n\n1,2\n\n3,4\n"
    assert cells(read(good, tmp_path)[0]) == {2: ("1", "2"), 4: ("3", "4")}
    for damage in (b"5\n", b"5,6,7\n", b"5,\xff\n", b"5,6\rx\n"):
        data = good.encode() + damage + b"8,9\n"
        with pytest.raises(MiscountError):
            read(data, tmp_path)
        rows, bad, other = read(data, tmp_path, strictly=True)
        assert (cells(rows), list(bad), other) == ({2: ("1", "2"), 4: ("3", "4"), 6: ("8", "9")}, [5], 2)


def test_delimiters_too_many_at_the_end_of_a_record_make_no_cells(tmp_path):
    data = 'id,n\n1,2,\n,,,,\n3,"4",\n'
    assert cells(read(data, tmp_path)[0]) == {2: ("1", "2"), 3: (None, None), 4: ("3", "4")}
    assert cells(read(data.replace('"', ""), tmp_path)[0]) == {2: ("1", "2"), 3: (None, None), 4: ("3", "4")}


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("null", ["NULL", r"\N", ""])
def test_what_databases_write_for_no_value_is_null(tmp_path, quote, null):
    data = f"a,b\n{quote}{null}{quote},NULLS\n"
    rows, bad, _ = read(data, tmp_path)
    assert (cells(rows), bad) == ({2: (None, "NULLS")}, {})


def test_duplicate_and_empty_names_and_names_that_differ_by_case_are_all_kept(tmp_path):
    rows, _, _ = read('id,ID,,id,source_line\n"1",2,3,4,5\n', tmp_path)
    assert rows == [{"id": "1", "ID": "2", "_2": "3", "id_3": "4", "source_line_": "5", "source_line": 2}]


@pytest.mark.parametrize("mode", ["duckdb", "plainly"])
def test_json_inside_cells_is_read_by_its_structure(tmp_path, mode, request):
    """Also as JSON text inside a JSON string; text that is no JSON is null."""
    if mode == "plainly":
        request.getfixturevalue("plainly")
    texts = ['{"n":1,"list":["a"]}', '"{\\"n\\":2}"', "no json", "", '{"n":', '"', "[]"]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["id", "meta"], *enumerate(texts)])
    rows, bad, _ = read(out.getvalue(), tmp_path)
    assert bad == {}
    assert [row["meta"] for row in rows] == [
        {"n": "1", "list": ["a"]},
        {"n": "2", "list": None},
        *[None] * 4,
        {"n": None, "list": None},
    ]


def test_cells_larger_than_pythons_own_limit_are_read(tmp_path):
    rows, bad, _ = read('id,text\n1,"' + "x" * 300_000 + '"\n', tmp_path)
    assert (len(rows[0]["text"]), bad) == (300_000, {})


def test_a_quote_that_stays_open_for_megabytes_costs_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "MAX_OPEN_QUOTE_BYTES", 1000)
    lines = [f"{n},text" for n in range(3, 2000)]
    rows, bad, _ = read("\n".join(["id,text", '2,"open', *lines]), tmp_path)
    assert list(bad) == [2]
    assert [row["source_line"] for row in rows] == list(range(3, 2000))


def test_blank_lines_before_the_header_and_files_of_blank_lines_are_other(tmp_path):
    assert read("\n\nid,n\n1,2\n", tmp_path) == ([{"id": "1", "n": "2", "source_line": 4}], {}, 3)
    assert read("\n \n", tmp_path) == ([], {}, 2)
    assert read("", tmp_path) == ([], {}, 0)
    assert read("id,n", tmp_path) == ([], {}, 1)


# Python's writer leaves a lone carriage return unquoted, which no reader can undo.
CELL = st.text(st.sampled_from('ab1 ,;"\n\tü{}[]:'), max_size=6)


@settings(max_examples=25, deadline=None)
@given(
    table=st.lists(st.tuples(CELL, CELL, CELL), max_size=8),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_pythons_writer_writes_is_read_back(table, quoting):
    """Cell by cell, with the line each record begins on, by DuckDB and plainly."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=quoting)
    writer.writerow(["a", "b", "c"])
    wanted = {}
    for row in table:
        line = out.getvalue().count("\n") + 1
        writer.writerow(row)
        wanted[line] = tuple(tidy(cell) for cell in row)
    with tempfile.TemporaryDirectory() as folder:
        rows, bad, other = read(out.getvalue(), folder, strictly=True)
    assert bad == {}
    assert cells(rows) == wanted
    assert other == 1


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(st.sampled_from('a1,"\n '), max_size=8), max_size=12))
def test_every_line_of_any_text_is_accounted_for_and_both_ways_agree(lines):
    """Records (and the lines they span), bad lines and others make up the file."""
    data = "a,b\n" + "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        rows, bad, other = read(data, folder, strictly=True)
        try:
            assert read(data, folder) == (rows, bad, other)
        except MiscountError:
            assert '"' not in data
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                csv_reader,
                "_read_spool",
                lambda f, shape, spool, *_: csv_reader._read_plainly(f, shape, spool),
            )
            assert read(data, folder, strictly=True) == (rows, bad, other)
    spanned = sum((row["a"] or "").count("\n") + (row["b"] or "").count("\n") for row in rows)
    assert len(rows) + len(bad) + other + spanned == len(data.splitlines())


@pytest.mark.parametrize(
    ("data", "line"),
    [(b'a,b\n,1"\n\n', 2), (b"\xef\xbb\xbf\na,b\n1,2\n", 3)],
    ids=["a stray quote takes no blank line along", "a line of nothing but a byte order mark is no header"],
)
def test_lines_that_hold_nothing_stay_lines(data, line, tmp_path):
    """Each line of the file is accounted for."""
    rows, bad, other = read(data, tmp_path, strictly=True)
    assert [row["source_line"] for row in rows] == [line]
    assert len(rows) + len(bad) + other == data.count(b"\n")


def test_delimiter_is_the_one_that_makes_most_cells():
    assert [sniff_delimiter(line) for line in ("a,b;c,d", "a;b;c,d", "a\tb", "a|b|c", "abc", "")] == list(
        ",;\t|,,"
    )


def test_delimiter_tears_no_quoted_cell_apart():
    series = 'up{a=""1"", b=""2"", c=""3""}'
    lines = (
        f'"Time";"{series}"',
        f'Time\t"{series}"',
        f'"Time","{series}"',
        f'"a, b", "{series}"',
    )
    assert [sniff_delimiter(line) for line in lines] == list(";\t,,")
