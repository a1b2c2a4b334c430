"""A small example week, written once for all tests of this folder, and a plain reader for it."""

from __future__ import annotations

import json

import pytest

from pipelines.synth.week import write_week


@pytest.fixture(scope="session")
def week(tmp_path_factory):
    """Folder and truth of a week of about 2,000 calls."""
    out = tmp_path_factory.mktemp("synth") / "week"
    return out, write_week(out, requests=2_000)


@pytest.fixture(scope="session")
def lines(week):
    """All lines of the gateway log as dicts, file by file, duplicates included."""
    out, _ = week
    return {
        path.name: [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        for path in sorted((out / "gateway").iterdir())
    }


@pytest.fixture(scope="session")
def records(lines):
    """Each record once, in order of its start: what a reader has after removing what was exported twice."""
    unique = {}
    for rows in lines.values():
        for row in rows:
            unique[row["id"], row["litellm_call_id"], row["startTime"]] = row
    return sorted(unique.values(), key=lambda row: row["startTime"])
