"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("TOKENWORKS_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with recorded logs and public traces; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("recorded logs and public traces are not beside this checkout (set TOKENWORKS_SHARED)")
    return SHARED
