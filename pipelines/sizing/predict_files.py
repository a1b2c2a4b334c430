"""Tables of serving points as files: read, predict, write beside.

Belongs here: CSV as it comes, given cells written back unchanged. Does not belong here: what a row means
(`points.py`), what is predicted (`predict.py`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from parsers.errors import SiteConfigError
from pipelines.sizing.predict import PREDICTED, predict
from warehouse.catalogue import Model
from warehouse.model_config import read_model_config

_LARGEST_CELL = 10_000_000
_DELIMITERS = ",;\t"
_DIGITS = 6


def predict_csv(source: Path, target: Path, extra: Mapping[str, Model] | None = None) -> tuple[int, int]:
    """Write the rows of one CSV file with predictions beside them.

    Returns:
        The number of rows, and of those predicted.

    Raises:
        SiteConfigError: the file has no header, or has columns of the predictions' names already.

    """
    delimiter, header, rows = _read(source)
    clash = [name for name in (*PREDICTED, "note") if name in header]
    if clash:
        raise SiteConfigError(
            f"the table has {', '.join(clash)} already",
            where=str(source),
            remedy="Rename or remove those columns: predictions get these names.",
        )
    found = predict(_frame(header, rows), extra)
    part = target.with_name(f"{target.name}.part")
    with part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter, lineterminator="\n")
        writer.writerow([*header, *PREDICTED, "note"])
        for cells, (*numbers, note) in zip(rows, found.iter_rows(), strict=True):
            padded = [*cells, *[""] * (len(header) - len(cells))]
            said = (
                note if len(cells) <= len(header) else "not predicted: the row has more cells than the header"
            )
            given = numbers if len(cells) <= len(header) else [None] * len(numbers)
            writer.writerow(
                [*padded[: len(header)], *(_shown(number) for number in given), said, *padded[len(header) :]]
            )
    part.replace(target)
    return len(rows), found["tpot_ms"].count()


def predict_point(point: Mapping[str, str | int | None], extra: Mapping[str, Model]) -> list[str]:
    """Predict one point; lines of name, estimate, and its interval.

    Raises:
        SiteConfigError: it can't be predicted; says why.

    """
    given = {name: [str(value)] for name, value in point.items() if value is not None}
    found = predict(pl.DataFrame(given, schema=dict.fromkeys(given, pl.String)), extra).row(0, named=True)
    if found["tpot_ms"] is None:
        raise SiteConfigError(found["note"], where="predict", remedy="See `tokenworks predict --help`.")
    lines = [
        f"{name + unit:22}{_shown(found[name + unit]):>10}   80 %: {_shown(found[f'{name}_low{unit}'])} to "
        f"{_shown(found[f'{name}_high{unit}'])}"
        for name, unit in (("tpot", "_ms"), ("ttft", "_ms"), ("power", "_w"))
        if found[name + unit] is not None
    ]
    lines.append(f"{'output_tokens_per_s':22}{_shown(found['output_tokens_per_s']):>10}")
    return [*lines, *([f"note: {found['note']}"] if found["note"] else [])]


def architectures(given: Sequence[str], model: str | None) -> dict[str, Model]:
    """Read `[NAME=]FILE` arguments; without a name the model that is asked for is meant."""
    found = {}
    for argument in given:
        name, separator, path = argument.rpartition("=")
        config = read_model_config(Path(path), name if separator else model)
        found[config.name] = config
    return found


def _read(source: Path) -> tuple[str, list[str], list[list[str]]]:
    csv.field_size_limit(_LARGEST_CELL)
    with source.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        first = stream.readline()
        delimiter = max(_DELIMITERS, key=first.count)
        stream.seek(0)
        try:
            header, *rows = [row for row in csv.reader(stream, delimiter=delimiter) if row]
        except csv.Error as error:
            raise SiteConfigError(f"the file is no CSV ({error})", where=str(source)) from None
        except ValueError:
            raise SiteConfigError(
                "the file is empty", where=str(source), remedy="Give a CSV with a header."
            ) from None
    return delimiter, header, rows


def _frame(header: Sequence[str], rows: Sequence[Sequence[str]]) -> pl.DataFrame:
    """Cells as text by column; a name that stands twice counts the first time."""
    columns: dict[str, list[str]] = {}
    for position, name in enumerate(header):
        key = _readable(name.strip())
        if key not in columns:
            columns[key] = [_readable(row[position]) if position < len(row) else "" for row in rows]
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))


def _readable(cell: str) -> str:
    """Bytes that are no UTF-8 become question marks; the cell itself is written back as it was."""
    return cell if cell.isascii() else cell.encode("utf-8", "replace").decode("utf-8", "replace")


def _shown(number: float | None) -> str:
    return "" if number is None else f"{number:.{_DIGITS}g}"
