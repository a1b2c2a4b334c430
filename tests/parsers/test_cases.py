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
from parsers.readers import has_elements
from parsers.records import REQUESTS
from parsers.registry import load
from parsers.sources import find_sources, lay_down, read_head

CASES = sorted(path for path in (Path(__file__).parent / "cases").glob("*/*") if path.is_dir())
JSON_CASES = [
    path for path in CASES if path.parent.name in {"litellm_payload", "litellm_spend_logs", "openai_usage"}
]
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
    assert len(set(result.numbers)) == len(result.numbers)
    assert_accounted(case, result, tmp_path)
    if "prefix_hashes" in result.rows.columns:
        chains = result.rows.filter(result.rows["prefix_token_counts"].is_not_null())
        assert (
            chains["prefix_hashes"]
            .list.len()
            .equals(chains["prefix_token_counts"].list.len(), check_names=False)
        )


def assert_accounted(case, result, tmp_path):
    """Of lines, every physical one is a row, a reject or other; records of documents are numbered without a gap."""
    container = load(case.parent.name).container
    laid = lay_down(find_sources([input_of(case)])[0], tmp_path)
    if container == "text" or (container == "json_lines" and not has_elements(laid.path)):
        assert result.lines == laid.newlines + laid.ends_open
    elif container == "csv":
        assert 0 < result.lines <= laid.newlines + laid.ends_open
    else:
        assert result.numbers == sorted(set(result.numbers))
        assert result.numbers[-1] <= result.lines


@pytest.mark.parametrize("case", JSON_CASES, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_a_row_does_not_depend_on_its_neighbours(case, read, read_source, tmp_path):
    """A column that is empty in one chunk and filled in another means the same in both."""
    whole = read_source(find_sources([input_of(case)])[0], tmp_path, name="input")
    if not has_elements(input_of(case)):
        lines = input_of(case).read_bytes().splitlines(keepends=True)
        for row in whole.rows.to_dicts():
            alone = read(lines[row["source_line"] - 1], format_name=case.parent.name, name="input")
            assert alone.rows.to_dicts() == [{**row, "source_line": 1}]


def test_requests_rows_of_cases_keep_the_token_invariants():
    """Read and write are part of the input, reasoning of the output, in every expectation that is stored."""
    for case in CASES:
        for row in stored(case / "rows.jsonl"):
            if row.keys() <= set(REQUESTS.names) and "input_tokens" in row:
                parts = ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
                assert sum(row.get(name, 0) for name in parts) <= row["input_tokens"], case
            if "output_tokens" in row:
                assert row.get("reasoning_tokens", 0) <= row["output_tokens"], case
