"""Ollama's own answers: bodies and final stream objects of /api/generate, /api/chat and /api/embed.

Belongs here: counts and durations (ns) of the object with `done: true`. Does not belong here: Ollama's
OpenAI-style answers (`openai_usage.py`), its server's log (`ollama_log.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import outcome
from parsers.clock import flag_list
from parsers.durations import before
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COUNTS = ("prompt_eval_count", "prompt_eval_cached_count", "eval_count")
_NS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
_TIMES = ("created_at", "timestamp", "time", "ts")
_NS_PER_MS = 1e6
STRUCTURE = {
    **dict.fromkeys(("model", "remote_model", "done", "done_reason", "response", *_TIMES), "VARCHAR"),
    **dict.fromkeys((*_COUNTS, *_NS), "VARCHAR"),
    "message": {"role": "VARCHAR"},
    "embeddings": "VARCHAR",
    "error": "JSON",
}


def _is_answer(item: dict[str, Any]) -> bool:
    if "model" not in item or "usage" in item:
        return False
    return {"created_at", "done"} <= item.keys() or {"embeddings", "total_duration"} <= item.keys()


def _recognise(head: Head) -> bool:
    """Errors have no more than their message: the answers between them tell."""
    return mostly([item for item in head.objects if item.keys() != {"error"}], _is_answer)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    done = fields.truth("done")
    prompt, cached, output = (fields.whole(name) for name in _COUNTS)
    total, load, prompt_ns, _ = (fields.number(name) for name in _NS)
    ended = fields.instant(*_TIMES).needed("created_at")
    duration = total.value / _NS_PER_MS
    measured = total.value.is_not_null()
    error = outcome.error_kind(fields.raw("error"))
    embeds = text("embeddings").is_not_null()
    no_work = ~measured & output.value.is_null() & ~embeds & error.is_null()
    is_other = (
        ~done.value.fill_null(value=True)
        | (done.value & no_work)
        | text("done_reason").is_in(["load", "unload"])
    )
    return fields.rows(
        other=is_other.fill_null(value=False),
        record_key=pl.concat_str(
            pl.lit("ollama"), text("model"), text(*_TIMES), text("total_duration"), separator="|"
        ),
        started_at=before(ended.value, duration),
        ended_at=ended,
        ttft_ms=(load.value.fill_null(0) + prompt_ns.value) / _NS_PER_MS,
        duration_ms=duration,
        provider=pl.lit("ollama"),
        model_requested=text("model"),
        model_served=text("remote_model", "model"),
        instance=pl.lit(context.options.get("instance"), pl.String),
        operation=pl.when(embeds)
        .then(pl.lit("embedding"))
        .when(text("message.role").is_not_null())
        .then(pl.lit("chat"))
        .otherwise(pl.lit("completion")),
        input_tokens=prompt,
        cache_read_tokens=cached,
        # Ollama leaves out what is 0; of the prompt, that is a prompt that was cached as a whole.
        output_tokens=pl.coalesce(output.value, pl.when(measured).then(0)),
        status=outcome.status(pl.lit(None, pl.Int32), failed=error.is_not_null()),
        error_kind=error,
        finish_reason=text("done_reason"),
        flags=flag_list({"prompt_wholly_cached": measured & prompt.value.is_null() & ~embeds}),
    )


FORMAT = Format(
    name="ollama_response",
    title="Ollama answers",
    written_by="Clients and proxies that keep bodies or streams of Ollama's native API",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with model, created_at and done (or embeddings and total_duration)",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc"),
    traps=(
        "Stream objects before the last one (done: false) state no counts: other lines.",
        "created_at of the last object is the end of the call; durations are ns, zeros are left out.",
        "prompt_eval_count is the uncached part up to 0.3 and in 0.30.0, else all: no field says.",
        "It is left out where all of the prompt was cached (up to 0.3): the input is unknown, not 0.",
        "prompt_eval_duration is always of the computed part: never divide one by the other.",
        "Image tokens are missing from the prompt of old versions.",
        "total_duration includes loading and waiting; ttft_ms is load + prompt, without the wait.",
        "Answers that only load or unload a model are other lines. eval_count includes thinking.",
        "Embeddings have no clock of their own: a line needs one beside it (timestamp), or is rejected.",
    ),
)
