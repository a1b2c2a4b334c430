"""The list of formats and what is on disk agree; every format describes itself and has a case; loading is lazy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from parsers.errors import UnknownFormatError
from parsers.records import RECORD_TABLES
from parsers.registry import _MODULES, FORMAT_NAMES, all_formats, load

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).parent / "cases"


def test_names_are_unique_and_each_format_loads_under_its_own():
    assert len(set(FORMAT_NAMES)) == len(FORMAT_NAMES)
    assert [fmt.name for fmt in all_formats()] == list(FORMAT_NAMES)


def test_every_module_of_the_formats_folder_is_registered_and_the_other_way_round():
    on_disk = {path.stem for path in (ROOT / "parsers/formats").glob("*.py") if not path.stem.startswith("_")}
    assert {_MODULES.get(name, name) for name in FORMAT_NAMES} == on_disk
    assert set(_MODULES) <= set(FORMAT_NAMES)


def test_every_folder_of_cases_belongs_to_a_format():
    assert {path.name for path in CASES.iterdir() if path.is_dir()} <= set(FORMAT_NAMES)


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_a_format_describes_itself_and_has_a_case(name):
    fmt = load(name)
    assert all(text.strip() for text in (fmt.title, fmt.written_by, fmt.recognised_by))
    assert fmt.traps
    assert all(trap.strip() for trap in fmt.traps)
    assert fmt.target in RECORD_TABLES
    assert fmt.structure is not None or not fmt.container.startswith("json")
    assert (fmt.records is not None) == (fmt.container == "json_document")
    assert list((CASES / name).glob("*/input.*")), f"put a case into tests/parsers/cases/{name}/"


def test_importing_the_registry_imports_no_format_and_no_compiler():
    code = (
        "import sys, parsers.registry\n"
        "heavy = [name for name in sys.modules if name.split('.')[0] in ('numba', 'duckdb', 'pandas', 'pyarrow')\n"
        "         or name.startswith('parsers.formats.')]\n"
        "print(heavy)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_recognising_imports_no_compiler():
    code = (
        "import sys\nfrom parsers.detect import matching\nfrom parsers.format import Head\n"
        "matching(Head('x', b'{}'))\nprint('numba' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_an_unknown_name_is_answered_with_the_nearest_one():
    with pytest.raises(UnknownFormatError, match="Did you mean litellm_payload"):
        load("litelm_payload")
    with pytest.raises(UnknownFormatError, match="`tokenworks formats` lists them"):
        load("qqq")
