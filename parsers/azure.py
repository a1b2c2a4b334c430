"""What the logs of Azure's services share: names of operations, times as the portal writes them.

Belongs here: readings that several of Azure's formats need. Does not belong here: where one keeps a field (`formats/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from parsers.fields import Fields, Read

# As the portal's CSV exports head and write the time.
_PORTAL_TIME, _PORTAL_PATTERN = "TimeGenerated [UTC]", "%m/%d/%Y, %I:%M:%S%.f %p"

# ChatCompletions_Create, Create_Completion, completions_create, Responses_Create ... in the order they are tried.
_OPERATIONS = {
    "chatcompletion": "chat",
    "response": "responses",
    "embedding": "embedding",
    "completion": "completion",
    "image": "image",
    "audio": "audio",
    "speech": "audio",
    "transcription": "audio",
    "translation": "audio",
}


def logged_at(fields: Fields, *names: str) -> Read:
    """When a record was written: under these names, or under the portal's own."""
    if any(map(fields.has, names)):
        return fields.instant(*names)
    return fields.instant(_PORTAL_TIME, unit=_PORTAL_PATTERN)


def operation(name: pl.Expr) -> pl.Expr:
    """The operation (of REQUESTS) that an API operation's name stands for; null for one that calls no model."""
    letters = name.str.to_lowercase().str.replace_all("[^a-z]", "")
    return pl.coalesce(
        pl.when(letters.str.contains(word, literal=True)).then(pl.lit(kind))
        for word, kind in _OPERATIONS.items()
    )
