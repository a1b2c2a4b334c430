"""The same logs, however often and under whatever names they are given, make the same facts."""

from __future__ import annotations

import datetime as dt
import gzip
import os

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from parsers.records import FILES, RECORD_TABLES, REJECTS


def same_content(one, other) -> None:
    """All tables equal, row order included; the manifest but for the time it was written."""
    for table in (*RECORD_TABLES, REJECTS):
        assert_frame_equal(one.tables[table.name], other.tables[table.name])
    assert one.doubles == other.doubles
    assert_frame_equal(one.files.drop("ingested_at"), other.files.drop("ingested_at"))


@pytest.fixture
def logs(tmp_path, payload, write):
    """Three files, one of them with a broken line and a blank one."""
    folder = tmp_path / "logs"
    write(folder / "a.jsonl", [payload(n) for n in range(20)])
    write(folder / "b.jsonl", [payload(20), "{broken\n", "\n", payload(21)], modified=1)
    write(folder / "sub" / "c.jsonl", [payload(n) for n in range(30, 40)], modified=2)
    return folder


def test_twice_gives_the_same(tmp_path, logs, ingest):
    first = ingest(tmp_path / "home", logs)
    second = ingest(tmp_path / "home", logs)
    same_content(first, second)
    assert first.requests.height == 32
    assert first.accounts() == (34, 34)


def test_a_day_is_one_file_and_is_replaced_whole(tmp_path, logs, ingest, payload, write, noon):
    write(logs / "d.jsonl", [payload(50, noon + dt.timedelta(days=1))], modified=3)
    home = tmp_path / "home"
    ingest(home, logs)
    days = sorted((home / "facts" / "requests").iterdir())
    assert [day.name for day in days] == ["day=2026-11-16", "day=2026-11-17"]
    assert all([file.name for file in day.iterdir()] == ["requests.parquet"] for day in days)
    inode = (days[0] / "requests.parquet").stat().st_ino
    ingest(home, logs)
    assert (days[0] / "requests.parquet").stat().st_ino != inode


@pytest.mark.parametrize("packed", ["copy.jsonl", "copy.jsonl.gz"])
def test_a_copy_beside_the_file_adds_nothing(tmp_path, logs, ingest, touch, packed):
    before = ingest(tmp_path / "home", logs)
    data = (logs / "a.jsonl").read_bytes()
    copy = logs / packed
    copy.write_bytes(gzip.compress(data) if packed.endswith(".gz") else data)
    touch(copy, 100)
    after = ingest(tmp_path / "home", logs)
    for table in (*RECORD_TABLES, REJECTS):
        assert_frame_equal(before.tables[table.name], after.tables[table.name])
    copied = after.files.filter(pl.col("copy_of").is_not_null())
    assert copied["path"].to_list() == [str(copy)]
    assert copied["copy_of"].to_list() == [str(logs / "a.jsonl")]
    assert after.accounts() == before.accounts()


def test_overlapping_exports_keep_one_of_each_record(tmp_path, logs, ingest, payload, write):
    before = ingest(tmp_path / "home", logs)
    write(logs / "overlap.jsonl", [payload(n) for n in range(10, 30)], modified=9)
    after = ingest(tmp_path / "home", logs)
    assert after.doubles == {"litellm_payload": 12}
    assert after.requests["request_id"].n_unique() == after.requests.height == 40
    kept = after.requests.filter(pl.col("source_file").str.ends_with("overlap.jsonl"))
    assert sorted(kept["request_id"]) == sorted(f"chatcmpl-{n}" for n in range(22, 30))
    old = after.requests.filter(~pl.col("source_file").str.ends_with("overlap.jsonl"))
    assert_frame_equal(old, before.requests)
    assert after.accounts()[0] == after.accounts()[1]


def test_a_file_that_grew_replaces_its_own_rows(tmp_path, logs, ingest, payload, write):
    home = tmp_path / "home"
    ingest(home, logs)
    write(logs / "a.jsonl", [payload(n) for n in range(25)])
    write(logs / "b.jsonl", [payload(n) for n in range(25, 27)], modified=1)
    grown = ingest(home, logs)
    same_content(grown, ingest_fresh(tmp_path, home, logs, ingest))
    assert grown.requests["request_id"].n_unique() == grown.requests.height == 37
    assert len(list((home / "landed").iterdir())) == 3


def ingest_fresh(tmp_path, home, logs, ingest):
    """The same logs into a new folder with the same secret."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "key").write_bytes((home / "key").read_bytes())
    return ingest(fresh, logs)


def test_a_removed_file_takes_its_rows_and_days_along(tmp_path, logs, ingest, payload, write, noon):
    home = tmp_path / "home"
    later = write(logs / "d.jsonl", [payload(1), payload(60, noon + dt.timedelta(days=2))], modified=3)
    with_it = ingest(home, logs)
    assert with_it.doubles == {"litellm_payload": 1}
    later.unlink()
    without = ingest(home, logs)
    same_content(without, ingest_fresh(tmp_path, home, logs, ingest))
    assert without.doubles == {}
    assert [day.name for day in (home / "facts" / "requests").iterdir()] == ["day=2026-11-16"]


def test_other_logs_in_the_same_folder_leave_nothing_of_the_first(
    tmp_path, logs, ingest, payload, write, noon
):
    home = tmp_path / "home"
    ingest(home, logs)
    other = write(tmp_path / "other.jsonl", [payload(1, noon - dt.timedelta(days=300))])
    facts = ingest(home, other)
    assert facts.requests["request_id"].to_list() == ["chatcmpl-1"]
    assert facts.files["path"].to_list() == [str(other)]


def test_paths_that_mean_the_same_file_make_no_doubles(tmp_path, logs, ingest, monkeypatch):
    monkeypatch.chdir(tmp_path)
    once = ingest(tmp_path / "home", "logs")
    (tmp_path / "link.jsonl").symlink_to(logs / "a.jsonl")
    given = [
        "logs",
        "logs/",
        "./logs",
        logs,
        f"{logs}/",
        "logs/a.jsonl",
        logs / "sub",
        "logs/*.jsonl",
        "link.jsonl",
        "logs",
    ]
    many = ingest(tmp_path / "home", *given)
    assert many.files.height == once.files.height == 3
    assert many.files["copy_of"].null_count() == 3
    assert many.requests.height == once.requests.height
    assert_frame_equal(many.requests.drop("source_file"), once.requests.drop("source_file"))


def test_results_among_the_logs_are_not_read_as_logs(tmp_path, logs, ingest):
    home = logs / "tokenworks-out"
    first = ingest(home, logs)
    (home / "audit.json").write_text("{}")
    (home / "marts").mkdir()
    (home / "marts" / "usage_daily.parquet").write_bytes(b"PAR1")
    same_content(first, ingest(home, logs))


def test_logs_in_the_folder_of_the_results_are_read(tmp_path, logs, ingest):
    assert ingest(logs, logs).requests.height == 32
    assert ingest(logs, logs).requests.height == 32


def azure(rows: list[tuple[str, int, int]]) -> list[str]:
    return ["TIMESTAMP,ContextTokens,GeneratedTokens\n", *(f"{at},{i},{o}\n" for at, i, o in rows)]


def rows_of_azure(count: int) -> list[tuple[str, int, int]]:
    return [(f"2023-11-16 18:{n // 60:02}:{n % 60:02}.1234567", 100 + n, n + 1) for n in range(count)]


def test_overlapping_exports_without_record_keys_keep_one_of_each_row(tmp_path, ingest, write):
    rows = rows_of_azure(90)
    rows[50] = rows[49]  # the same second, the same counts: two calls, not one
    logs = tmp_path / "logs"
    write(logs / "1.csv", azure(rows[:60]))
    write(logs / "2.csv", azure(rows[40:]), modified=1)
    facts = ingest(tmp_path / "home", logs)
    assert facts.requests.height == 90
    assert facts.doubles == {"azure_llm_trace": 20}
    assert facts.accounts() == (112, 112)
    whole = ingest(tmp_path / "other", write(tmp_path / "whole.csv", azure(rows)))
    assert_frame_equal(
        facts.requests.drop("source_file", "source_line"), whole.requests.drop("source_file", "source_line")
    )


def test_rows_that_are_equal_by_chance_in_two_files_are_two_calls(tmp_path, ingest, write):
    one, other = rows_of_azure(30), rows_of_azure(30)
    other = [(at, i + (n % 3), o) for n, (at, i, o) in enumerate(other)]  # every third row is equal
    logs = tmp_path / "logs"
    write(logs / "host1.csv", azure(one))
    write(logs / "host2.csv", azure(other), modified=1)
    facts = ingest(tmp_path / "home", logs)
    assert facts.requests.height == 60
    assert facts.doubles == {}


def test_overlapping_samples_of_devices_keep_one_of_each(tmp_path, ingest, write):
    header = "timestamp, index, uuid, power.draw [W]\n"
    lines = [
        f"2026/11/16 12:00:{n:02}.000, 0, GPU-11111111-2222-3333-4444-555555555555, {200 + n}.50 W\n"
        for n in range(60)
    ]
    logs = tmp_path / "logs"
    write(logs / "gpu.csv", [header, *lines[:40]])
    write(logs / "gpu-later.csv", [header, *lines[20:]], modified=1)
    facts = ingest(tmp_path / "home", logs)
    assert facts.tables["device_samples"].height == 60
    assert sum(facts.doubles.values()) == 20


def test_a_touched_copy_of_a_log_without_years_is_one_log(tmp_path, ingest, write, touch):
    line = (
        "INFO 11-16 12:{:02}:00 [loggers.py:100] Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation "
        "throughput: 3.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.5%, Prefix cache hit rate: 10.0%\n"
    )
    logs = tmp_path / "logs"
    write(logs / "server.log", [line.format(n) for n in range(10)])
    once = ingest(tmp_path / "home", logs)
    assert once.tables["engine_samples"].height == 10
    (logs / "server.log.gz").write_bytes(gzip.compress((logs / "server.log").read_bytes()))
    touch(logs / "server.log.gz", 86_400 * 400)
    twice = ingest(tmp_path / "home", logs)
    assert_frame_equal(once.tables["engine_samples"], twice.tables["engine_samples"])


@pytest.mark.parametrize(
    "name",
    ["[1].jsonl", "a*.jsonl", "q?.jsonl", "it's.jsonl", "~home.jsonl", "two\nlines.jsonl", "\x1b[31mred.jsonl", "plain.gz",
     "plain.zst", "-dash.jsonl", "[bold]x[-bold].jsonl", "<script>.jsonl", "x;DROP TABLE requests;--.jsonl", b"\xff\xfe.jsonl"],
)  # fmt: skip
def test_names_of_files_mean_nothing(tmp_path, ingest, payload, monkeypatch, name):
    folder = tmp_path / "logs"
    folder.mkdir()
    path = os.path.join(os.fsencode(folder), name if isinstance(name, bytes) else name.encode())
    for n, file in enumerate((path, os.path.join(os.fsencode(folder), b"a1.jsonl"))):
        with open(file, "w") as stream:
            stream.write("".join(payload(100 * n + k) for k in range(3)))
    monkeypatch.chdir(folder)
    facts = ingest(tmp_path / "home's [1]", os.fsdecode(os.path.basename(path)), "a1.jsonl")
    assert facts.requests.height == 6
    assert facts.requests["source_file"].n_unique() == 2
    assert set(facts.requests["source_file"]) == set(facts.files["path"])
    assert FILES.problems(facts.files) == {}
