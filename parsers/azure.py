"""What the logs of Azure's services share: names of operations.

Belongs here: readings that several of Azure's formats need. Does not belong here: where one keeps a field (`formats/`).
"""

from __future__ import annotations

import polars as pl

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


def operation(name: pl.Expr) -> pl.Expr:
    """The operation (of REQUESTS) that an API operation's name stands for; null for one that calls no model."""
    letters = name.str.to_lowercase().str.replace_all("[^a-z]", "")
    return pl.coalesce(
        pl.when(letters.str.contains(word, literal=True)).then(pl.lit(kind))
        for word, kind in _OPERATIONS.items()
    )
