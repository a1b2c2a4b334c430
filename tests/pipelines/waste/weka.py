"""Rows of the public Weka traces: agents' sessions whose block ids are local to a session."""

from __future__ import annotations

import json
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any


def weka_rows(path: Path, sessions: int) -> list[dict[str, Any]]:
    """Rows for `build_requests` of the first sessions of the archive."""
    rows = []
    with tarfile.open(path) as archive:
        members = (member for member in archive if member.name.endswith(".json"))
        for number, member in enumerate(islice(members, sessions)):
            document = json.load(archive.extractfile(member))
            rows += [
                {
                    "s": float(request["t"]),
                    "session_id": f"s{number}",
                    "prefix_hashes": [number << 32 | block for block in request["hash_ids"]],
                    "prefix_token_counts": [64 * (k + 1) for k in range(len(request["hash_ids"]))],
                    "input_tokens": max(64 * len(request["hash_ids"]), 1),
                }
                for request in document["requests"]
                if request.get("hash_ids")
            ]
    return rows
