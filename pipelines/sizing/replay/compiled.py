"""How the replay's kernels are compiled.

Belongs here: the one decorator. Does not belong here: kernels.
"""

from __future__ import annotations

from typing import Any

import numba

_COUNTS_NO_REFERENCES: dict[str, Any] = {"_nrt": False}

compiled = numba.njit(cache=True, nogil=True, **_COUNTS_NO_REFERENCES)
"""Keeps the machine code on disk. Without numba's counting of references: the kernels only borrow arrays, and
to count each array at each call of a small function took two thirds of their time."""
