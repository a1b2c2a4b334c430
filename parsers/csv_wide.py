"""CSV tables whose cells are the records: a column per series, a line per instant.

Belongs here: making records of cells. Does not belong here: reading the lines (`csv_reader.py`), what a cell
means (`formats/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.csv_reader import read_csv
from parsers.readers import LINE, MAX_CHUNK_ROWS, Raw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Format
    from parsers.sources import Laid


def read_csv_cells(fmt: Format, laid: Laid, work: Path, *, strictly: bool = False) -> Iterator[Raw]:
    """Each cell behind the first column: `first` (that column's cell), `header` and `value`; line by line.

    Cells are numbered through; a bad line takes one number, and its reason says which line it is.

    Raises:
        MiscountError: read again with `strictly`.

    """
    seen = 0
    for raw in read_csv(fmt, laid, work, strictly=strictly):
        headers = [name for name in raw.frame.columns if name != LINE][1:]
        good = raw.frame[LINE] if headers else pl.Series(dtype=pl.Int64)
        bad = pl.Series(list(raw.bad_lines), dtype=pl.Int64)
        cells = pl.col("line").is_in(good.implode()).cast(pl.Int64) * (len(headers) - 1) + 1
        weights = pl.DataFrame({"line": pl.concat([good, bad]).sort()}).with_columns(cells=cells)
        before = dict(zip(weights["line"], weights["cells"].cum_sum() - weights["cells"], strict=True))
        yield Raw(
            pl.DataFrame(),
            {seen + 1 + before[line]: f"line {line}: {reason}" for line, reason in raw.bad_lines.items()},
            raw.other_lines,
        )
        if headers:
            starts = good.replace_strict(before, return_dtype=pl.Int64) + seen
            lines = raw.frame.with_columns(_before=starts)
            for part in lines.iter_slices(max(1, MAX_CHUNK_ROWS // len(headers))):
                yield Raw(_cells(part, headers))
        seen += int(weights["cells"].sum())


def _cells(lines: pl.DataFrame, headers: list[str]) -> pl.DataFrame:
    first = next(name for name in lines.columns if name not in {LINE, *headers})
    width = len(headers)
    cells = lines.select(
        "_before",
        pl.col(first).alias("first"),
        pl.concat_list(pl.col(headers).cast(pl.String)).alias("value"),
    ).explode("value")
    place = pl.int_range(pl.len(), dtype=pl.Int64) % width
    return cells.select(
        (pl.col("_before") + place + 1).alias(LINE),
        "first",
        place.replace_strict(dict(enumerate(headers)), return_dtype=pl.String).alias("header"),
        "value",
    )
