"""Every folder under cases/ is a test: text in, canonical rows and rejects out.

A folder `cases/<format>/<case>/` holds `input.<ext>`, `rows.jsonl`, `rejects.jsonl` and, where the reading needs some,
`options.toml`. Rows stand there without columns that are null, empty flags, the source's name and format, and keyed
hashes (as many of which there must be as token counts). `pytest --update-golden` writes them anew.
"""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from parsers.detect import matching
from parsers.records import REQUESTS
from parsers.sources import find_sources, lay_down, read_head

CASES = sorted(path for path in (Path(__file__).parent / "cases").glob("*/*") if path.is_dir())
LEFT_OUT = {"source_file", "source_format", "prompt_hash", "prefix_hashes"}


def as_json(value):
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return format(value.normalize(), "f") if isinstance(value, Decimal) else value


def shown(row):
    kept = {k: as_json(v) for k, v in row.items() if k not in LEFT_OUT and v is not None}
    return without_empty_flags(kept)


def without_empty_flags(row):
    return {k: v for k, v in row.items() if (k, v) != ("flags", [])}


def written(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def stored(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def input_of(case):
    return next(path for path in case.iterdir() if path.name.startswith("input."))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_case(case, read_source, tmp_path, update_golden):
    """Exactly its format claims the input; rows and rejects are as written; every line is accounted for once."""
    source = find_sources([input_of(case)])[0]
    assert [fmt.name for fmt in matching(read_head(source))] == [case.parent.name]
    options = case / "options.toml"
    given = tomllib.loads(options.read_text(encoding="utf-8")) if options.exists() else {}
    result = read_source(source, tmp_path, name=input_of(case).name, options=given)

    rows = [shown(row) for row in result.rows.to_dicts()]
    rejects = [{k: row[k] for k in ("source_line", "reason")} for row in result.rejects.to_dicts()]
    if update_golden:
        (case / "rows.jsonl").write_text(written(rows), encoding="utf-8")
        (case / "rejects.jsonl").write_text(written(rejects), encoding="utf-8")
    assert rows == [without_empty_flags(row) for row in stored(case / "rows.jsonl")]
    assert rejects == stored(case / "rejects.jsonl")
    numbers = result.rows["source_line"].to_list() + result.rejects["source_line"].to_list()
    assert len(set(numbers)) == len(numbers)
    if "prefix_hashes" in result.rows.columns:
        chains = result.rows.filter(result.rows["prefix_token_counts"].is_not_null())
        assert chains["prefix_hashes"].list.len().equals(chains["prefix_token_counts"].list.len(), check_names=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_case_accounts_for_every_physical_line(case, read_source, tmp_path):
    """Lines = rows + rejects + other; for CSV and documents a record may span several lines."""
    source = find_sources([input_of(case)])[0]
    laid = lay_down(source, tmp_path)
    result = read_source(source, tmp_path, name="input")
    physical = laid.newlines + laid.ends_open
    is_array = laid.path.read_bytes().lstrip()[:1] == b"["
    if input_of(case).suffix in {".jsonl", ".log", ".ndjson"} and not is_array:
        assert result.lines == physical
    else:
        assert 0 < result.lines <= max(physical, result.rows.height + result.rejects.height)


def test_requests_rows_of_cases_keep_the_token_invariants():
    """Read and write are part of the input, reasoning of the output, in every expectation that is stored."""
    for case in CASES:
        for row in stored(case / "rows.jsonl"):
            if row.keys() <= set(REQUESTS.names) and "input_tokens" in row:
                parts = ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
                assert sum(row.get(name, 0) for name in parts) <= row["input_tokens"], case
            if "output_tokens" in row:
                assert row.get("reasoning_tokens", 0) <= row["output_tokens"], case
