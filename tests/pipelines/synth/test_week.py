"""The example week as a whole: the same bytes every time, its files, the errors of its arguments."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from parsers.errors import SiteConfigError
from pipelines.synth.week import write_week

WASTE = {
    "repeated_documents",
    "oversize_prompts",
    "agent_sessions_without_cache",
    "retried_attempts",
    "fallback_attempts",
    "failed_calls",
}


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_week(tmp_path / name, days=2, requests=300, seed=seed)
    first = files_of(tmp_path / "a")
    assert first == files_of(tmp_path / "b")
    other = files_of(tmp_path / "c")
    assert first.keys() == other.keys()
    assert all(first[name] != other[name] for name in first)


def test_folder_holds_a_file_for_each_day_telemetry_and_truth(week):
    out, truth = week
    assert sorted(files_of(out)) == [
        *(f"gateway/2026-11-{day}.jsonl" for day in range(16, 23)),
        "telemetry/nvidia_smi.csv",
        "truth.json",
    ]
    assert json.loads((out / "truth.json").read_text())["files"] == truth.files


def test_lines_of_the_files_are_those_of_the_truth(week, lines):
    _, truth = week
    assert {f"gateway/{name}": len(rows) for name, rows in lines.items()} == truth.files
    assert sum(truth.files.values()) == truth.lines


@pytest.mark.parametrize("wanted", [700, 2_000, 4_000])
def test_number_of_rows_is_about_what_was_asked_for(tmp_path, wanted):
    truth = write_week(tmp_path / "week", days=3, requests=wanted)
    assert truth.rows["all"] == pytest.approx(wanted, rel=0.15)


def test_other_days_and_starts_work(tmp_path):
    truth = write_week(tmp_path / "one", days=1, requests=200, start=date(2026, 2, 28))
    assert list(truth.files) == ["gateway/2026-02-28.jsonl"]
    assert truth.duplicate_lines == 0
    assert truth.of_kind("launch_burst").requests >= 30


def test_large_logs_have_lines_of_ordinary_length(tmp_path):
    """Sessions with long bodies stay as many as they are when more is asked for."""
    usual = write_week(tmp_path / "usual", days=1, requests=2_900)
    large = write_week(tmp_path / "large", days=1, requests=5_800)
    name = "repeated_documents"
    assert usual.of_kind(name).detail["calls"] == pytest.approx(large.of_kind(name).detail["calls"], rel=0.1)
    assert large.rows["all"] > 1.8 * usual.rows["all"]


def test_without_planted_waste_no_waste_is_there(tmp_path, week):
    truth = write_week(tmp_path / "clean", requests=2_000, waste=frozenset())
    assert {planted.kind for planted in week[1].planted} >= WASTE
    assert not {planted.kind for planted in truth.planted} & WASTE
    assert truth.rows["error"] == 0
    with pytest.raises(KeyError, match="oversize_prompts"):
        truth.of_kind("oversize_prompts")


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SiteConfigError, match=r"not empty.*--out"):
        write_week(tmp_path, days=1, requests=100)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("arguments", "option"), [({"days": 0}, "--days"), ({"requests": 10}, "--requests")])
def test_arguments_out_of_bounds_name_the_option(tmp_path, arguments, option):
    with pytest.raises(SiteConfigError, match=option):
        write_week(tmp_path / "week", **arguments)


def test_nothing_of_this_machine_is_written(week):
    out, _ = week
    for content in files_of(out).values():
        assert str(Path.home()).encode() not in content
        assert str(out).encode() not in content
