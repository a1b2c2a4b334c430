"""JSON lines and arrays: whatever stands in a file, every line is one of row, bad line or blank, and a row is its own."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import json_reader, readers
from parsers.errors import UnreadableSourceError
from parsers.format import Format
from parsers.readers import MiscountError
from parsers.records import REQUESTS
from parsers.rejects import Explainer
from parsers.sources import find_sources, lay_down

FORMAT = Format(
    name="test",
    title="test",
    written_by="test",
    target=REQUESTS,
    container="json_lines",
    recognised_by="",
    recognise=lambda _: True,
    map=lambda frame, _: frame,
    structure={"a": "VARCHAR", "b": {"c": "VARCHAR"}},
)
BOM = b"\xef\xbb\xbf"
BLANK = [b"", b" ", b"\t  ", b"\r", b"\x0b", b" \r"]
BAD = [
    b"\x00",
    b'{"a":"1"\x00}',
    b'{"a":"\xff"}',
    b'{"a":"1"}{"a":"2"}',
    b'{"a":"1"} {"a":"2"}',
    b'{"a":"1"}\r{"a":"2"}',
    b'[{"a":"1"},{"a":"2"}]',
    b"[]",
    b"{}",
    b'{"z":1}',
    b"5",
    b'"text"',
    b"null",
    b'{"a":"1"',
    b'{"a":"1',
    b'"a":"1"}',
    b'{"a":"1"},',
    b"[" * 50,
    b'{"a":' * 5000,
    b"plain text, not JSON",
    b'{"a":"\\ud800"}',
    b"\xc2\xa0",
]


def good(number):
    return [
        json.dumps({"a": str(number)}).encode(),
        json.dumps({"x": [1, {"y": None}], "a": str(number), "b": "no object"}).encode(),
        b' {"a": "%d" , "b": {"c": "\xe2\x80\xa8 \xf0\x9f\x98\x80"}} ' % number,
        b'{"a":"%d"}\r' % number,
        b'{"b":{"c":"quote \\" and \\\\ and \\n"},"a":"%d"}' % number,
    ]


PIECES = st.one_of(
    st.tuples(st.just("row"), st.integers(0, 4)),
    st.tuples(st.just("bad"), st.sampled_from(BAD)),
    st.tuples(st.just("other"), st.sampled_from(BLANK)),
)


def laid_down(data, folder):
    path = Path(folder) / "input.jsonl"
    path.write_bytes(data)
    return lay_down(find_sources([path])[0], Path(folder))


def read(data, folder, *, strictly):
    """({line: a}, bad lines with reasons, blank lines)."""
    laid = laid_down(data, folder)
    rows, bad, other = {}, {}, 0
    for raw in json_reader.read_json_lines(FORMAT, laid, Path(folder), strictly=strictly):
        if raw.frame.height:
            rows.update(zip(raw.frame["source_line"].to_list(), raw.frame["a"].to_list(), strict=True))
        bad.update(raw.bad_lines)
        other += raw.other_lines
    return rows, bad, other


@settings(max_examples=40, deadline=None)
@given(pieces=st.lists(PIECES, max_size=12), ends_open=st.booleans(), bom=st.booleans())
def test_every_line_is_one_thing_and_a_row_is_its_own_line(pieces, ends_open, bom):
    """Fast and strict reading agree, on any mixture of good, bad and blank lines."""
    pieces = [("row", 0), *pieces]  # a file that begins with "[" is an array
    lines = [good(n)[content] if kind == "row" else content for n, (kind, content) in enumerate(pieces, 1)]
    data = b"\n".join(lines) + (b"" if ends_open else b"\n")
    kinds = [kind for kind, _ in pieces]
    if ends_open and not lines[-1]:
        kinds.pop()
    with tempfile.TemporaryDirectory() as folder:
        for strictly in (False, True):
            rows, bad, other = read(BOM * bom + data, folder, strictly=strictly)
            assert rows == {n: str(n) for n, kind in enumerate(kinds, 1) if kind == "row"}
            assert set(bad) == {n for n, kind in enumerate(kinds, 1) if kind == "bad"}
            assert other == kinds.count("other")


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_empty_and_blank_files_have_no_rows(tmp_path, ending):
    assert read(b"" + ending, tmp_path, strictly=False) == ({}, {}, len(ending))
    assert read(b"  \n\n\t" + ending, tmp_path, strictly=False) == ({}, {}, 3)


def test_lines_over_16_mib_are_read(tmp_path):
    """DuckDB refuses objects of that size unless it is told; the fast way is not even tried."""
    data = b'{"a":"1"}\n{"b":{"c":"' + b"x" * (17 << 20) + b'"},"a":"2"}\n{"a":"3"}\n'
    assert laid_down(data, tmp_path).has_long_lines
    assert read(data, tmp_path, strictly=False) == ({1: "1", 2: "2", 3: "3"}, {}, 0)


@pytest.mark.slow
def test_lines_over_64_mib_are_refused(tmp_path):
    """Neither shifts the lines behind it, and a line of 100 MB is not held in memory to be refused."""
    filler = b"x" * (17 << 20)
    data = b"".join(
        [
            b'{"a":"1"}\n',
            b'{"b":{"c":"' + filler + b'"},"a":"2"}\n',
            b'{"b":{"c":"' + filler * 6 + b'"},"a":"3"}\n',
            b'{"a":"4"}',
        ]
    )
    rows, bad, other = read(data, tmp_path, strictly=False)
    assert (rows, other) == ({1: "1", 2: "2", 4: "4"}, 0)
    assert bad == {3: "the record is longer than 64 MiB"}


def test_what_is_appended_while_a_file_is_read_waits_for_the_next_time(tmp_path):
    """The fast way sees too many lines and gives up; the strict way reads what was laid down, and no more."""
    path = tmp_path / "input.jsonl"
    path.write_bytes(b'{"a":"1"}\n{"a":"2"}\n')
    laid = lay_down(find_sources([path])[0], tmp_path)
    with path.open("ab") as log:
        log.write(b'{"a":"3"}\n')
    with pytest.raises(MiscountError):
        list(json_reader.read_json_lines(FORMAT, laid, tmp_path))
    rows = pl.concat(raw.frame for raw in json_reader.read_json_lines(FORMAT, laid, tmp_path, strictly=True))
    assert rows["a"].to_list() == ["1", "2"]


def test_a_file_that_was_truncated_while_it_was_read_says_so(tmp_path):
    path = tmp_path / "input.jsonl"
    path.write_bytes(b'{"a":"1"}\n{"a":"2"}\n')
    laid = lay_down(find_sources([path])[0], tmp_path)
    path.write_bytes(b'{"a":"1"}\n')
    with pytest.raises(UnreadableSourceError, match="became shorter"):
        list(json_reader.read_json_lines(FORMAT, laid, tmp_path, strictly=True))


def test_a_spool_that_duckdb_counts_otherwise_is_checked_line_by_line(tmp_path, monkeypatch):
    """The last resort: only what Python takes for an object is given to DuckDB."""
    counted = json_reader._read_spool
    calls = []

    def miscounting(fmt, spool, count):
        calls.append(count)
        return None if len(calls) == 1 else counted(fmt, spool, count)

    monkeypatch.setattr(json_reader, "_read_spool", miscounting)
    rows, bad, _ = read(b'{"a":"1"}\nnot JSON\n{"a":"3"}\n', tmp_path, strictly=True)
    assert rows == {1: "1", 3: "3"}
    assert bad == {2: "the line is not JSON: Expecting value (column 1)"}
    assert calls == [3, 2]


ELEMENTS = [b'{"a":"%d"}', b'{\n  "a": "%d",\n  "b": {"c": "],[{}"}\n}', b'{"a":"%d","b":{"c":"\\"},{"}}']
BROKEN = [b"5", b'"a, b"', b"null", b'{"a":\xff}', b'{"a" "1"}', b"[1, {}]", b'{"z":1}', b"}", b"a b"]


@settings(max_examples=50, deadline=None)
@given(
    pieces=st.lists(st.one_of(st.integers(0, 2), st.sampled_from(BROKEN[:7])), min_size=1, max_size=10),
    cut=st.booleans(),
    more=st.booleans(),
)
def test_elements_of_arrays_are_numbered_and_a_damaged_one_costs_itself(pieces, cut, more):
    """Also where the array is cut off, or another one follows it."""
    elements = [ELEMENTS[p] % n if isinstance(p, int) else p for n, p in enumerate([0, *pieces], 1)]
    data = b"[" + b",\n".join(elements)
    wanted = {n: str(n) for n, p in enumerate([0, *pieces], 1) if isinstance(p, int)}
    count = len(elements)
    if cut:
        data, count = data + b', {"a": "cut o', count + 1
    else:
        data += b"]\n"
        if more:
            data, count = data + b'[{"a":"%d"}]' % (count + 1), count + 1
            wanted[count] = str(count)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows, bad, other = read(data, folder, strictly=False)
        except MiscountError:
            rows, bad, other = read(data, folder, strictly=True)
        strict = read(data, folder, strictly=True)
    assert rows == wanted
    assert sorted([*rows, *bad]) == list(range(1, count + 1))
    assert (rows, set(bad), other) == (strict[0], set(strict[1]), strict[2])


def test_a_bracket_that_is_never_closed_costs_what_follows_and_it_is_counted(tmp_path):
    rows, bad, _ = read(b'[{"a":"1"},{"a":{"b":2},{"a":"3"}]', tmp_path, strictly=True)
    assert rows == {1: "1"}
    assert list(bad) == [2]


def test_objects_between_arrays_are_elements_too(tmp_path):
    data = b'[{"a":"1"}]\n{"a":"2","b":{"c":"x"}}\n[{"a":"3"},{"a":"4"}]'
    assert read(data, tmp_path, strictly=True)[0] == {1: "1", 2: "2", 3: "3", 4: "4"}


def test_an_array_that_goes_on_beyond_the_chunk_size_keeps_its_order(tmp_path):
    count = 20_000
    data = b"[" + b",".join(b'{"a":"%d"}' % n for n in range(1, count + 1)) + b"]"
    rows, bad, other = read(data, tmp_path, strictly=False)
    assert (len(rows), bad, other) == (count, {}, 0)
    assert all(int(text) == line for line, text in rows.items())


def test_reasons_say_what_is_wrong_and_excerpts_and_offsets_are_the_lines(tmp_path):
    lines = [b'{"a":"1"}', b"\xff", b'{"a":"\\ud800"}', b'{"z":1}', b"[1]", b"nonsense", b""]
    laid = laid_down(b"\n".join(lines), tmp_path)
    found = Explainer(laid, FORMAT, "f", by_line=True).rejects(dict.fromkeys((2, 3, 4, 5, 6), ""))
    assert found["source_line"].to_list() == [2, 3, 4, 5, 6]
    assert found["byte_offset"].to_list() == [10, 12, 27, 35, 39]
    assert found["reason"].to_list() == [
        "the line is not UTF-8 text (byte 1)",
        "the line holds half of a surrogate pair (\\ud800 to \\udfff)",
        "the record has none of the fields of this format",
        "the line is JSON but no object (list)",
        "the line is not JSON: Expecting value (column 1)",
    ]


def test_rejects_are_found_again_in_any_order_of_chunks(tmp_path, monkeypatch):
    """Checkpoints spare reading from the start; a chunk may name lines before those of the last one."""
    monkeypatch.setattr("parsers.rejects.CHECKPOINT_LINES", 3)
    laid = laid_down(b"".join(b"line %d\n" % n for n in range(1, 40)), tmp_path)
    explainer = Explainer(laid, FORMAT, "f", by_line=True)
    for wanted in ([30, 31], [2, 5], [39], [7], [1, 38]):
        found = explainer.rejects(dict.fromkeys(wanted, "bad"))
        offsets = [sum(len(b"line %d\n" % n) for n in range(1, line)) for line in wanted]
        assert found["byte_offset"].to_list() == offsets


def test_text_lines_are_cut_but_never_split(tmp_path):
    long = b"y" * (3 << 20)
    laid = laid_down(b"a\r\n" + long + b"\n\n" + b"\xff\xfe\n" + b"last", tmp_path)
    frame = pl.concat(raw.frame for raw in readers.read_text(laid, 65_536))
    assert frame["source_line"].to_list() == [1, 2, 3, 4, 5]
    assert frame["line"].to_list() == ["a", "y" * 65_536, "", "\ufffd\ufffd", "last"]
