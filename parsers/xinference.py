"""Xinference's log by its lines: its own, and those of the vLLM inside it.

Belongs here: whether a log is Xinference's, and vLLM's lines under Python's usual heads in vLLM's own form.
Does not belong here: what lines say (`formats/xinference_log.py`, `formats/vllm_log.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

STAMP = r"^(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?)(?: - | )(?P<logger>[\w.]+)(?: - | )"
VLLM_HEAD = (
    r"^\d{4}-(\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d{3})?(?: - | )vllm\.([\w.]+)(?: - | )(?:\d+ )?([A-Z]+) *(?:- )?"
)
VLLM_OWN_HEAD = "${3} ${1} [${2}.py:0] "
"""What `VLLM_HEAD` is in vLLM's own form."""
_OWN = re.compile(STAMP.replace(r"[\w.]+", r"xinference(?:\.\w+)+"))
_VLLM = re.compile(VLLM_HEAD)
_SHARE = 0.05


def as_vllm(line: str) -> str:
    """A line with vLLM's own head, if it has Python's; for recognising."""
    return _VLLM.sub(r"\3 \1 [\2.py:0] ", line)


def is_xinference(lines: Sequence[str]) -> bool:
    """Whether these lines (without prefixes) are Xinference's, and not better read for the vLLM inside it.

    Old versions print no tokens of calls: there vLLM's statistics are all there is.
    """
    own = [line for line in lines if _OWN.match(line)]
    tells = any("Generate finished, request_id: " in line for line in own)
    statistics = any(_VLLM.match(line) and "Avg prompt throughput: " in line for line in lines)
    return len(own) > _SHARE * len(lines) and (tells or not statistics)
