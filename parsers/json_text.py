"""JSON text to values that a frame can hold.

Belongs here: decoding of single texts. Does not belong here: reading files (`json_reader.py`).
"""

from __future__ import annotations

import json
from typing import Any


def decoded(text: str) -> Any:
    """The value of a JSON text; half of a surrogate pair, which no UTF-8 text can hold, becomes `?`.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deep.

    """
    value = json.loads(text)
    if "\\ud" in text or "\\uD" in text:
        return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value
