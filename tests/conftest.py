"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

# A shared machine makes single examples slow; the time of a test is bounded by the suite's, not by an example's.
# CI tries the same examples each time: what it says of a change is to be about the change.
settings.register_profile("tokenworks", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tokenworks")

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("TOKENWORKS_SHARED", ROOT.parent / "shared"))


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the expected rows of data-driven cases; read the diff",
    )


@pytest.fixture(scope="session")
def update_golden(request) -> bool:
    """Whether expectations are to be rewritten instead of compared."""
    return request.config.getoption("--update-golden")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with recorded logs and public traces; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("recorded logs and public traces are not beside this checkout (set TOKENWORKS_SHARED)")
    return SHARED


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def command():
    """Run `tokenworks` as a user does, in a process of its own; whatever happens, no traceback is shown."""

    def run(*arguments: str | Path, **options) -> Ran:
        program = Path(sys.executable).with_name("tokenworks")
        done = subprocess.run(
            [program, *map(str, arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
            **options,
        )
        assert "Traceback" not in done.stderr + done.stdout, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
