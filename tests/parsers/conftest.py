"""The real path from bytes to canonical rows, for tests: laid down, detected, parsed, every line accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import polars as pl
import pytest

from parsers.detect import detect
from parsers.format import Context
from parsers.hashing import PromptHasher
from parsers.parse import parse
from parsers.readers import MiscountError
from parsers.sources import Source, find_sources, lay_down, read_head

KEY = b"a key for tests only"
WRITTEN = datetime(2026, 3, 8, tzinfo=UTC)


@dataclass(frozen=True)
class Result:
    """All chunks of one source together."""

    format: str
    rows: pl.DataFrame
    rejects: pl.DataFrame
    other_lines: int
    problem: str | None
    was_strict: bool

    @property
    def lines(self) -> int:
        return self.rows.height + self.rejects.height + self.other_lines

    @property
    def numbers(self) -> list[int]:
        return sorted(self.rows["source_line"].to_list() + self.rejects["source_line"].to_list())

    @property
    def reasons(self) -> dict[int, str]:
        return dict(zip(self.rejects["source_line"].to_list(), self.rejects["reason"].to_list(), strict=True))


def _read_source(
    source, work, *, name=None, options=None, format_name=None, fmt=None, strictly=False
) -> Result:
    """Take one source through detection, laying down and parsing, as landing does."""
    head = read_head(source)
    fmt = fmt or detect(head, format_name).format
    laid = lay_down(source, work)
    context = Context(name or source.name, PromptHasher(KEY), WRITTEN, options or {}, head.text)
    named = Source(name or source.name, source.path, source.member, WRITTEN)
    was_strict = strictly
    try:
        chunks = list(parse(named, fmt, laid, context, work, strictly=strictly))
    except MiscountError:
        was_strict = True
        chunks = list(parse(named, fmt, laid, context, work, strictly=True))
    for chunk in chunks:
        assert fmt.target.problems(chunk.rows) == {}
        assert chunk.rows.schema == fmt.target.schema
    return Result(
        fmt.name,
        pl.concat([chunk.rows for chunk in chunks]).sort("source_line") if chunks else fmt.target.empty(),
        pl.concat([chunk.rejects for chunk in chunks]).sort("source_line") if chunks else pl.DataFrame(),
        sum(chunk.other_lines for chunk in chunks),
        laid.problem,
        was_strict,
    )


@pytest.fixture(scope="session")
def read_source():
    """Read a `Source` that `find_sources` found."""
    return _read_source


@pytest.fixture
def read(tmp_path):
    """Read bytes (or text) as a log of the given name."""

    def run(content, name="input.jsonl", **how) -> Result:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (tmp_path / "work").mkdir(exist_ok=True)
        return _read_source(find_sources([path])[0], tmp_path / "work", name=name, **how)

    return run
