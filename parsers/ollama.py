"""Ollama's server log by its lines: access lines of Gin, and the server's own.

Belongs here: what these lines look like, and whether a log is Ollama's (its runner's lines are llama.cpp's).
Does not belong here: what a call is made of (`formats/ollama_log.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers import durations

if TYPE_CHECKING:
    from collections.abc import Sequence

GIN = (
    r"^\[GIN\] (?P<stamp>\d{4}/\d\d/\d\d - \d\d:\d\d:\d\d) \| *(?P<http>\d{3}) *\| *"
    rf'(?P<took>{durations.PATTERN}) *\| *(?P<client>\S*) *\| *(?P<verb>[A-Z]+) +"(?P<path>[^"]*)"'
)
OWN = r"^time=\d{4}-\d\d-\d\dT[\d:.]{8,}(?P<offset>Z|[+-]\d\d:\d\d) level=[A-Z]+ source=\w+\.go:\d+ "
_IS_GIN, _IS_OWN = re.compile(GIN), re.compile(OWN)
_OWN_PATHS = re.compile(r'[A-Z] +"/api/(?:chat|generate|embed|tags|ps|show|version|pull|create)')


def is_ollama(lines: Sequence[str]) -> bool:
    """Whether any of these lines (without prefixes) is of Ollama's server: others use Gin, too."""
    return any(_IS_OWN.match(line) or (_IS_GIN.match(line) and _OWN_PATHS.search(line)) for line in lines)
