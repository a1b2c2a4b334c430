"""What LiteLLM's shapes have in common: outcomes, call types, names, what counts include.

Belongs here: readings that the formats `litellm_*` share. Does not
belong here: where a shape keeps a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers import routes, usage
from parsers.fields import CLASS_NAME
from parsers.values import present

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parsers.fields import Fields, Read
    from parsers.format import Context
    from parsers.usage import Counts

_OPERATIONS = {
    "completion": "chat",
    "acompletion": "chat",
    "anthropic_messages": "chat",
    "agenerate_content": "chat",
    "generate_content": "chat",
    "agenerate_content_stream": "chat",
    "generate_content_stream": "chat",
    "text_completion": "completion",
    "atext_completion": "completion",
    "responses": "responses",
    "aresponses": "responses",
    "_aresponses_websocket": "responses",
    "embedding": "embedding",
    "aembedding": "embedding",
    "rerank": "rerank",
    "arerank": "rerank",
    "image_generation": "image",
    "aimage_generation": "image",
    "image_edit": "image",
    "aimage_edit": "image",
    "transcription": "audio",
    "atranscription": "audio",
    "speech": "audio",
    "aspeech": "audio",
    "_arealtime": "audio",
    "moderation": "moderation",
    "amoderation": "moderation",
    "create_batch": "batch",
    "acreate_batch": "batch",
    "aretrieve_batch": "batch",
    "retrieve_batch": "batch",
}
_PASSED_THROUGH = r"pass_?through"
_BATCH_POLLS = ("retrieve_batch", "aretrieve_batch")
_HANGUPS = ("ClientDisconnected", "ClientDisconnectedError", "CancelledError")
_HANGUP_CODE = "499"
_KEY_HASH = r"^[0-9a-f]{64}$"
_MASTER_KEY = "litellm_proxy_master_key"


@dataclass(frozen=True)
class Times:
    """The instants of a row."""

    started: Read
    ended: Read
    first_token: Read


@dataclass(frozen=True)
class Known:
    """What `common` builds on."""

    status: pl.Expr
    call_type: pl.Expr
    request_id: pl.Expr
    call_id: pl.Expr
    counts: Counts
    times: Times
    is_stream: pl.Expr
    address: pl.Expr
    """Route or upstream address: tells the operation of calls that were passed through."""


def times(fields: Fields) -> Times:
    """Read instants: unix seconds or naive UTC texts (LiteLLM's schema allows both)."""
    return Times(
        fields.instant("startTime").needed("startTime"),
        fields.instant("endTime"),
        fields.instant("completionStartTime"),
    )


def status(status: pl.Expr, error_class: pl.Expr, error_code: pl.Expr) -> pl.Expr:
    """ok, error or cancelled. A client that hung up is logged as a success that has an error.

    Versions without a status are read by whether they name an error.
    """
    hung_up = error_class.is_in(_HANGUPS) | (error_code == _HANGUP_CODE)
    failed = (status != "success").fill_null(error_class.is_not_null())
    return (
        pl.when(hung_up).then(pl.lit("cancelled")).when(failed).then(pl.lit("error")).otherwise(pl.lit("ok"))
    )


def common(known: Known) -> dict[str, pl.Expr]:
    """The columns that are the same in every shape: identity, times, counts, outcome, trust.

    A count of a failed row is an estimate of the gateway if it is above 0, and unknown if it is 0; counts of
    0 and 0 on a served row say that no usage was reported.
    """
    counts, is_error = known.counts, known.status == "error"
    prompt, completion = counts.prompt.value, counts.completion.value
    nothing = prompt.fill_null(0) + completion.fill_null(0) == 0
    # A call without an id has Python's word for none as its id.
    logged_id, call_id = present(known.request_id).replace("None", None), present(known.call_id)
    plain_id = logged_id.str.replace(r"_cache_hit\d+(\.\d+)?$", "")
    started = known.times.started.value
    first, ended = known.times.first_token.value, known.times.ended.value
    # A call that failed before its first token has the end in its place.
    is_unanswered = (is_error & (first >= ended)).fill_null(value=False)

    return {
        "request_id": plain_id,
        # A finished batch is logged each time that it is asked for, under the batch's id.
        "record_key": pl.when(known.call_type.is_in(_BATCH_POLLS) & (prompt + completion > 0))
        .then(pl.concat_str(pl.lit("batch"), plain_id.str.strip_suffix("_batch_cost"), separator="|"))
        .when(pl.coalesce(logged_id, call_id).is_not_null())
        .then(
            pl.concat_str([logged_id, call_id, started.dt.timestamp("us")], separator="|", ignore_nulls=True)
        ),
        "call_id": pl.coalesce(call_id, plain_id),
        "started_at": started,
        "ended_at": ended,
        "first_token_at": pl.when(known.is_stream & ~is_unanswered).then(first),
        "gateway": pl.lit("litellm"),
        "operation": pl.coalesce(
            present(known.call_type).replace_strict(_OPERATIONS, default=None, return_dtype=pl.String),
            pl.when(known.call_type.str.contains(_PASSED_THROUGH)).then(routes.operation(known.address)),
            pl.lit("other"),
        ),
        "status": known.status,
        "usage_origin": pl.when(nothing)
        .then(pl.lit("missing"))
        .when(is_error)
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        "input_tokens": pl.when(~nothing).then(prompt),
        "output_tokens": pl.when(~nothing).then(completion),
        **usage.columns(counts, ~is_error & ~nothing),
        "cost_currency": pl.lit("USD"),
    }


def cache_outside(fields: Fields, counts: Counts, objects: Sequence[str]) -> pl.Expr:
    """True where a usage object shows that prompt_tokens leaves out the cache, as on some routes and before v1.65.

    It shows it by stating the whole beside it, or by being Anthropic's own object; null where nothing shows it (the
    rules of `normalise.py` then look at the counts).
    """
    prompt = counts.prompt.value
    cached = counts.cache_read.value.fill_null(0) + counts.cache_write.value.fill_null(0)
    whole = fields.whole(*(f"{at}.prompt_tokens" for at in objects)).value
    bare = fields.whole(*(f"{at}.input_tokens" for at in objects)).value
    own_names = [
        f"{at}.{name}"
        for at in objects
        for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    totals = [f"{at}.total_tokens" for at in objects]
    is_anthropic = (bare == prompt) & fields.raw(*own_names).is_not_null() & fields.raw(*totals).is_null()
    shown = (cached > 0) & ((whole == prompt + cached) | is_anthropic)
    return pl.when(shown.fill_null(value=False)).then(pl.lit(value=True))


def own_tags(fields: Fields, name: str) -> pl.Expr:
    """Tags that the operator set: LiteLLM adds `User-Agent: ...` by itself."""
    if not fields.has(name):
        return pl.lit(None, dtype=pl.List(pl.String))
    return pl.col(name).list.filter(~pl.element().str.starts_with("User-Agent: "))


def endpoint(address: pl.Expr) -> pl.Expr:
    """An upstream address without credentials, query and fragment."""
    return routes.endpoint(present(address))


def http_status(status: pl.Expr, error_code: pl.Expr) -> pl.Expr:
    """The error's code where it is a number; 200 for a served call."""
    code = present(error_code).cast(pl.Int32, strict=False)
    return pl.when(code.is_between(100, 999)).then(code).when(status == "ok").then(200)


def error_kind(status: pl.Expr, error_class: pl.Expr) -> pl.Expr:
    """Class of the error, of rows that have one; `unknown` where the log names no class."""
    name = pl.when(error_class.str.contains(CLASS_NAME)).then(error_class)
    return pl.when(status != "ok").then(name.fill_null("unknown"))


def response_cache_hit(cache_hit: pl.Expr) -> pl.Expr:
    """Whether the gateway's own cache answered: true and "True" say so; false, "None", "" and null do not."""
    return present(cache_hit).str.to_lowercase().fill_null("none") == "true"


def with_safe_key(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Hash what is in api_key_hash unless it is LiteLLM's own hash: some versions log the key itself."""
    keys = rows["api_key_hash"].unique().drop_nulls()
    raw = keys.filter(~keys.str.contains(_KEY_HASH) & (keys != _MASTER_KEY))
    if raw.is_empty():
        return rows
    hashed = pl.Series([context.hasher.digest(key) for key in raw], dtype=pl.String)
    return rows.with_columns(pl.col("api_key_hash").replace(raw, hashed))


def daily_sums(fields: Fields) -> dict[str, pl.Expr]:
    """The columns of USAGE_BUCKETS that LiteLLM's daily tables and their API state alike."""
    counts = {
        "failed_requests": "failed_requests",
        "input_tokens": "prompt_tokens",
        "cache_read_tokens": "cache_read_input_tokens",
        "cache_write_5m_tokens": "cache_creation_input_tokens",
        "output_tokens": "completion_tokens",
    }
    return {
        "gateway": pl.lit("litellm"),
        **{name: fields.whole(stated).value for name, stated in counts.items()},
        "cost_reported": fields.money("spend").value,
        "cost_currency": pl.lit("USD"),
    }
