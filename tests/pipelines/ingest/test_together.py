"""Many small files land together, and what each of them gives is what it gives alone."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import time

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from parsers import together as parsing
from parsers.hashing import PromptHasher
from parsers.records import REQUESTS
from parsers.registry import load
from parsers.sources import find_sources
from parsers.together import FileWantedError, parse_together
from pipelines.ingest import together
from pipelines.ingest.land import Reading, forget_others, land_all
from warehouse.store import Warehouse

FILES = 40


@pytest.fixture
def logs(tmp_path, payload, write):
    """One payload a file, and among them everything that a file can be."""
    folder = tmp_path / "logs"
    for number in range(FILES):
        write(folder / f"day{number % 3}" / f"{number:03}.json", [payload(number)], modified=number)
    write(folder / "array.json", [f"[{payload(100)},\n{payload(101)}]"])
    write(folder / "spread.json", [json.dumps(json.loads(payload(102)), indent=2), "\n"])
    write(folder / "two_spread.json", [json.dumps(json.loads(payload(n)), indent=1) for n in (103, 104)])
    write(folder / "lines.jsonl", ["\n", payload(105), "  \n", payload(106).strip()])
    write(folder / "bom.json", ["\ufeff" + payload(107)])
    write(folder / "broken.jsonl", [payload(108), "{broken\n", payload(109)])
    write(folder / "cut.json", [f"[{payload(110)},{payload(111)[:90]}"])
    write(folder / "unread.json", [payload(112, prompt_tokens="many"), payload(113)])
    write(folder / "two_on_a_line.jsonl", [payload(114).strip() + payload(115)])
    write(folder / "surrogate.jsonl", [payload(116, user="\ud800"), payload(117)])
    write(folder / "copy.json", [payload(3)], modified=500)
    write(folder / "notes.txt", ["not a log\n"])
    write(folder / "empty.json", [""])
    (folder / "packed.json.gz").write_bytes(gzip.compress(payload(118).encode()))
    (folder / "cut.json.gz").write_bytes(
        gzip.compress(random.Random(1).randbytes(5000).hex().encode())[:3000]
    )
    return folder


@pytest.fixture
def alone(monkeypatch):
    """Ingest with every file landed alone."""

    def ingested(ingest, *args):
        with monkeypatch.context() as patch:
            patch.setattr(together, "LEAST_FILES", 1 << 30)
            return ingest(*args)

    return ingested


def bundles(home):
    return sorted(path.name for path in (home / "landed").glob("together-*"))


def test_all_is_as_if_each_file_had_landed_alone(tmp_path, logs, ingest, alone):
    """Rows with file and line, rejects, counts, problems, doubles: only the clock of the run differs."""
    one = alone(ingest, tmp_path / "one", logs)
    (tmp_path / "many").mkdir()
    shutil.copy(tmp_path / "one" / "key", tmp_path / "many" / "key")
    many = ingest(tmp_path / "many", logs)
    assert bundles(tmp_path / "one") == []
    assert len(bundles(tmp_path / "many")) == 1
    for name, table in one.tables.items():
        same = [column for column in table.columns if column != "ingested_at"]
        assert_frame_equal(many.tables[name].select(same), table.select(same))
    assert many.doubles == one.doubles
    assert many.accounts()[0] == many.accounts()[1]
    assert many.requests.height >= FILES + 14


def test_again_nothing_is_parsed_and_a_file_that_grew_lands_anew(
    tmp_path, logs, ingest, monkeypatch, payload, write
):
    home = tmp_path / "home"
    first = ingest(home, logs)
    before = bundles(home)
    monkeypatch.setattr(together, "parse_together", None)
    second = ingest(home, logs)
    assert_frame_equal(second.requests, first.requests)
    assert bundles(home) == before
    write(logs / "day1" / "001.json", [payload(1), payload(200)], modified=900)
    third = ingest(home, logs)
    assert third.requests.height == first.requests.height + 1
    assert bundles(home) == before
    for path in logs.rglob("*.json"):
        path.unlink()
    ingest(home, logs)
    assert bundles(home) == []


def test_a_few_files_and_formats_that_ask_for_the_file_land_alone(tmp_path, payload, write, ingest):
    for number in range(together.LEAST_FILES - 1):
        write(tmp_path / "few" / f"{number}.json", [payload(number)])
    assert ingest(tmp_path / "a", tmp_path / "few").requests.height == together.LEAST_FILES - 1
    body = {"type": "message", "role": "assistant", "model": "claude-opus-4-5", "content": []}
    for number in range(together.LEAST_FILES * 2):
        answer = body | {"id": f"msg_{number}", "usage": {"input_tokens": 5 + number, "output_tokens": 1}}
        write(tmp_path / "bodies" / f"{number}.json", [json.dumps(answer)], number)
    facts = ingest(tmp_path / "b", tmp_path / "bodies")
    assert facts.files["format"].unique().to_list() == ["anthropic_messages"]
    assert facts.requests["started_at"].n_unique() == facts.requests.height == together.LEAST_FILES * 2
    assert bundles(tmp_path / "a") == bundles(tmp_path / "b") == []


def test_files_that_are_all_broken_land_alone_each_time(tmp_path, payload, write, ingest, monkeypatch):
    """What could not land together once is not tried again, and does not stand in its own way."""
    for number in range(together.LEAST_FILES * 2):
        lines = [payload(number), "{broken\n"] if number % 2 else [payload(number)]
        write(tmp_path / "logs" / f"{number:02}.jsonl", lines, modified=number)
    first = ingest(tmp_path / "home", tmp_path / "logs")
    assert (first.requests.height, first.tables["rejects"].height) == (32, 16)
    monkeypatch.setattr(together, "parse_together", None)
    for _ in range(2):
        assert ingest(tmp_path / "home", tmp_path / "logs").accounts() == first.accounts() == (48, 48)


def test_a_mapping_that_asks_for_its_file_is_refused(tmp_path, payload):
    hasher = PromptHasher.from_file(tmp_path / "key")
    fmt = load("anthropic_messages")
    with pytest.raises(FileWantedError):
        parse_together(
            {"a": b'{"type":"message","id":"m","usage":{"input_tokens":1}}'}, fmt, hasher, {}, tmp_path
        )
    rows, lines = parse_together({"a": payload(1).encode()}, load("litellm_payload"), hasher, {}, tmp_path)
    assert rows.select("source_file", "source_line").rows() == [("a", 1)]
    assert (rows.columns, lines) == (REQUESTS.names, {"a": 1})


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"a":1}\n', (1, {1: b'{"a":1}'})),
        (b'\n {"a":1}\r\n\n', (3, {2: b'{"a":1}'})),
        (b'[{"a":\n1},\n {"b":"[{"}]\n', (2, {1: b'{"a": 1}', 2: b'{"b":"[{"}'})),
        (b'{\n"a":1}\n{\n"b":2}', (2, {1: b'{ "a":1}', 2: b'{ "b":2}'})),
        (b'[{"a":1},{"b"', None),
        (b'[{"a":1},2]', None),
        (b'{\n"a":1},{"b":2}', None),
        (b'[{"a":"\xff"}]', None),
    ],
)
def test_records_are_told_apart(content, found):
    assert parsing._records(content) == found


@pytest.mark.slow
def test_ten_thousand_files_land_in_half_a_minute(tmp_path, payload):
    for number in range(10_000):
        path = tmp_path / "logs" / f"{number // 500}" / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(payload(number), encoding="utf-8")
    warehouse = Warehouse(tmp_path / "home")
    sources = find_sources([tmp_path / "logs"])
    began = time.process_time()
    landings = land_all(sources, warehouse, Reading())
    assert time.process_time() - began < 30
    assert sum(item.rows for item in landings) == len({item.id for item in landings}) == 10_000
    forget_others(landings, warehouse)
    parts = warehouse.parts_of(item.id for item in landings)
    assert pl.scan_parquet(parts).select(pl.len()).collect().item() == 10_000
