"""Of a log only listed places are kept, of every format; and no credential is, even in a place that is.

`kept_places.json` lists, by format, the places whose text is kept with the columns that hold it, and by case
those that can't be changed without the record becoming another one (clocks, kinds of events). `pytest --update-golden` writes it anew: a line
that is added there is text of a log that is stored from now on. The inputs are those of `parsers/cases/`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pytest

from parsers.registry import load
from parsers.sources import find_sources
from parsers.withheld import WITHHELD
from pipelines.ingest.land import land_each
from tests.planting import CASES, CREDENTIALS, KEPT, MARK, Case, everything_in, with_fields
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_SAID = (
    "content text prompt messages arguments completion answer message traceback query headers cookie authorization "
    "system instructions body image_url url error_message error_str"
)
SAID = frozenset(_SAID.split())
"""Names of fields that hold what was said: never a kept place, whatever the format."""
FIRST = list({case.format: case for case in reversed(CASES)}.values())
"""One case of each format is quick; the others wait for the slow suite."""
EACH = [pytest.param(case, marks=() if case in FIRST else pytest.mark.slow) for case in CASES]
IN_TURN = [
    pytest.param(case, turn, marks=() if case in FIRST and not turn else pytest.mark.slow)
    for case in CASES
    for turn in (0, 1)
]


@dataclass(frozen=True)
class Left:
    """What landing an input leaves: rows, and all other text by where it is."""

    rows: pl.DataFrame
    elsewhere: dict[str, str]

    def kept(self) -> dict[int, set[str]]:
        """Numbers of the places found in rows, with the columns."""
        found: dict[int, set[str]] = {}
        for column in self.rows.columns:
            for number in MARK.findall(str(self.rows[column].unique().to_list())):
                found.setdefault(int(number), set()).add(column)
        return found

    def leaked(self) -> dict[str, list[str]]:
        found = {where: MARK.findall(text) for where, text in self.elsewhere.items()}
        return {where: numbers for where, numbers in found.items() if numbers}


@pytest.fixture
def land(tmp_path) -> Callable[[Case, bytes], Left]:
    """Land the content of a case, as `audit` and `parse` do."""
    number = iter(range(1_000_000))

    def run(case: Case, content: bytes) -> Left:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        path = folder / case.input.name
        path.write_bytes(content)
        warehouse = Warehouse(folder / "home")
        landings = list(land_each(find_sources([path]), warehouse, case.reading()))
        parts = [part for item in landings if item.id for part in warehouse.parts(item.id)]
        frames = [pl.read_parquet(part, glob=False) for part in parts]
        rows = pl.concat(frames) if frames else load(case.format).target.empty()
        texts = {"landings": str(landings)} | everything_in(folder / "home")
        return Left(rows, {where: text for where, text in texts.items() if "/part-" not in where})

    return run


@pytest.fixture(scope="module")
def listed(update_golden) -> Iterator[dict[str, dict]]:
    """The list of what is kept; written anew at the end where that is asked for."""
    found = {} if update_golden else json.loads(KEPT.read_text(encoding="utf-8"))
    yield found
    if update_golden:
        KEPT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")


def fixed_places(case: Case, rows: int, land: Callable[[Case, bytes], Left]) -> list[str]:
    """Places that can't be changed without another number of rows."""

    def holds(some: Sequence[str]) -> bool:
        return land(case, case.marked(some)).rows.height == rows

    def fixed(some: Sequence[str]) -> list[str]:
        if not some or holds(some):
            return []
        middle = len(some) // 2
        return [*fixed(some[:middle]), *fixed(some[middle:])] if middle else list(some)

    found = fixed(case.places)
    free = [place for place in case.places if place not in found]
    if holds(free):
        return found
    # Some are free alone and not together: ids that refer to each other.
    together: list[str] = []
    for place in free:
        together += [place] if holds([*together, place]) else []
    return [place for place in case.places if place not in together]


def update(listed: dict[str, dict], case: Case, land: Callable[[Case, bytes], Left]) -> None:
    entry = listed.setdefault(case.format, {"fixed": {}, "kept": {}})
    fixed = fixed_places(case, land(case, case.content).rows.height, land)
    entry["fixed"] |= {case.name: fixed} if fixed else {}
    for number, columns in land(case, case.marked(case.free(entry))).kept().items():
        known = entry["kept"].get(case.places[number], "").split()
        entry["kept"][case.places[number]] = " ".join(sorted({*known, *columns}))


def sown(case: Case, entry: dict, turn: int) -> dict[str, str]:
    """A mark for every place; for every other place that is kept a credential instead, on the other turn for the rest."""
    places = case.free(entry)
    kept = [place for place in places if place in entry["kept"]][turn::2]
    first = CASES.index(case) + turn
    # A meter writes its cells without quotes: one with a comma would be two.
    unquoted = case.format.endswith("_smi_csv")
    fitting = [text for text in CREDENTIALS if not (unquoted and "," in text)]
    secret = {place: fitting[(first + n) % len(fitting)] for n, place in enumerate(kept)}
    return {place: secret.get(place) or case.mark(place) for place in places}


@pytest.mark.parametrize(("case", "turn"), IN_TURN, ids=str)
def test_only_what_is_listed_is_kept_and_no_credential_of_it(case, turn, land, listed, update_golden):
    """Rows are as many as before, told apart as before, and say what is withheld.

    Rejects, excerpts, manifest and names of unused fields hold nothing that was planted.
    """
    if update_golden and not turn:
        update(listed, case, land)
    entry = listed[case.format]
    left = land(case, case.planted(sown(case, entry, turn)))
    assert left.rows.height == case.rows
    unlisted = {
        case.places[number]: columns
        for number, columns in left.kept().items()
        if not columns <= set(entry["kept"].get(case.places[number], "").split())
    }
    assert unlisted == {}
    assert left.leaked() == {}
    texts = left.elsewhere | {"rows": str(left.rows.to_dicts())}
    assert {where for where, text in texts.items() if "planted" in text.lower()} == set()
    assert (WITHHELD in texts["rows"]) == ("secret-" in texts["rows"])


@pytest.mark.parametrize("case", EACH, ids=str)
def test_of_records_that_nothing_fits_any_more_nothing_is_kept(case, land, listed):
    """Clocks and kinds broken, too, so that rejects and errors tell of the records, which have odd fields besides."""
    entry = listed[case.format]
    fields = {"zq9999x said.x_tokens": 7, "zq9998x said": {"few_tokens": 7, "zq9997x said": "zq9996x said"}}
    left = land(case, with_fields(case.marked(case.places), fields))
    assert left.leaked() == {}
    kept = {case.places[number] if number < len(case.places) else number for number in left.kept()}
    assert kept <= {*entry["kept"], *(place for fixed in entry["fixed"].values() for place in fixed)}


def test_no_place_where_something_is_said_is_listed(listed):
    """Whoever adds such a field to what is kept has to think twice. Some call a provider `system`, a route `url`."""
    said = {
        (name, place)
        for name, entry in listed.items()
        for place, columns in entry["kept"].items()
        if columns not in ("provider", "endpoint")
        and re.split(r"[.$|{\[\]]+", place.rstrip("[]$|"))[-1].lower() in SAID
    }
    assert said == set()
