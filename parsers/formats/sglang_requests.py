"""SGLang's request metrics: `--export-metrics-to-file`, one JSON object per finished request.

Belongs here: the record of `sglang-request-metrics-YYYYMMDD_HH.log`: the request's parameters as JSON text,
and the `meta_info` of its answer. Does not belong here: batch lines (`sglang_log.py`), response bodies
(`openai_usage.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.fields import Fields, Read, first_fault
from parsers.format import Format, TokenSemantics
from parsers.metrics import engine_instance
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_CLOCK_SLACK = pl.duration(milliseconds=1)
PARAMETERS = {
    **dict.fromkeys(("model", "lora_path", "stream", "text"), "VARCHAR"),
    "sampling_params": {"max_new_tokens": "VARCHAR"},
    "session_params": {"id": "VARCHAR"},
}
_NAMES = (
    "id",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "e2e_latency",
    "queue_time",
)
_INSTANTS = (
    "request_received_ts",
    "response_sent_to_client_ts",
    "request_finished_ts",
    "prefill_finished_time",
)
STRUCTURE = {
    "request_parameters": "VARCHAR",
    "finish_reason": {"type": "VARCHAR", "status_code": "VARCHAR", "err_type": "VARCHAR"},
    **dict.fromkeys((*_NAMES, *_INSTANTS, "num_retractions", "dp_rank"), "VARCHAR"),
}


def _recognise(head: Head) -> bool:
    objects = head.objects
    return bool(objects) and all(
        {"request_parameters", "prompt_tokens"} <= item.keys()
        and {"e2e_latency", "weight_version"} & item.keys()
        for item in objects
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    received, finished = fields.instant("request_received_ts"), fields.instant("request_finished_ts")
    sent, prefilled = fields.instant("response_sent_to_client_ts"), fields.instant("prefill_finished_time")
    latency, queue = fields.number("e2e_latency"), fields.number("queue_time")
    counts = {name: fields.whole(name) for name in _NAMES[1:5]}
    limit = fields.whole("request_parameters.sampling_params.max_new_tokens")
    retractions = fields.whole("num_retractions")
    ended = pl.coalesce(finished.value, received.value + _seconds(latency), sent.value)
    started = Read(pl.coalesce(received.value, ended - _seconds(latency)), received.fault).needed(
        "request_received_ts"
    )
    streamed = text("request_parameters.stream").str.to_lowercase() == "true"
    # A streamed answer is sent first with its first token; others once, at their end.
    first = pl.coalesce(pl.when(streamed).then(sent.value), _between(prefilled.value, started.value, ended))
    failure, code = text("finish_reason.err_type"), fields.whole("finish_reason.status_code")
    aborted = text("finish_reason.type") == "abort"
    failed = aborted & ((code.value >= 400) | failure.is_not_null())  # noqa: PLR2004
    embeds = text("finish_reason.type").is_null() & counts["completion_tokens"].value.is_null()
    rows = fields.frame.select(
        "source_line",
        request_id=text("id"),
        record_key=pl.concat_str(text("id"), started.value.dt.timestamp("us"), separator="|"),
        session_id=text("request_parameters.session_params.id"),
        started_at=started.value,
        first_token_at=pl.when(streamed).then(first),
        ended_at=ended,
        queue_ms=queue.value * 1000,
        ttft_ms=(first - started.value).dt.total_microseconds() / 1000,
        duration_ms=latency.value * 1000,
        provider=pl.lit("sglang"),
        model_served=pl.coalesce(text("request_parameters.lora_path"), text("request_parameters.model")),
        operation=pl.when(embeds).then(pl.lit("embedding")),
        stream=streamed,
        instance=engine_instance(pl.lit(context.options.get("instance"), pl.String), text("dp_rank")),
        input_tokens=counts["prompt_tokens"].value,
        cache_read_tokens=counts["cached_tokens"].value,
        output_tokens=counts["completion_tokens"].value.fill_null(pl.when(embeds).then(0)),
        reasoning_tokens=counts["reasoning_tokens"].value,
        max_output_tokens=limit.value,
        status=pl.when(failed)
        .then(pl.lit("error"))
        .when(aborted)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("ok")),
        http_status=pl.when(code.value.is_between(100, 599)).then(code.value),
        error_kind=pl.when(failed).then(pl.coalesce(failure, pl.lit("abort"))),
        finish_reason=text("finish_reason.type"),
        usage_origin=pl.when(counts["prompt_tokens"].value.is_null())
        .then(pl.lit("missing"))
        .otherwise(pl.lit("reported")),
        flags=flag_list({"retracted": retractions.value > 0, "operation_assumed": embeds}),
        _reject=first_fault([started, finished, sent, latency, queue, *counts.values(), limit, code]),
        _other=pl.lit(value=False),
    )
    return rows.with_columns(_hashes(fields, rows, context))


def _seconds(read: Read) -> pl.Expr:
    usable = pl.when(read.value.is_between(0, 1e9)).then(read.value)
    return (usable * 1_000_000).round().cast(pl.Int64).cast(pl.Duration("us"))


def _between(instant: pl.Expr, start: pl.Expr, end: pl.Expr) -> pl.Expr:
    """The instant if it lies in the request: older versions stamp stages by another clock."""
    return pl.when(instant.is_between(start, end + _CLOCK_SLACK)).then(instant)


def _hashes(fields: Fields, rows: pl.DataFrame, context: Context) -> list[pl.Series]:
    """Keyed hashes of the prompt's text where the export holds it; the text itself goes nowhere."""
    if not fields.has("request_parameters.text"):
        return []
    prompt = fields.frame.select(pl.concat_list("request_parameters.text").list.drop_nulls().alias("text"))[
        "text"
    ]
    return list(context.hasher.chain(prompt, rows["input_tokens"]))


FORMAT = Format(
    name="sglang_requests",
    title="SGLang request metrics",
    written_by="SGLang server with --export-metrics-to-file (since 2025-11)",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with request_parameters, prompt_tokens and e2e_latency or weight_version",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    embedded={"request_parameters": PARAMETERS},
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc"),
    traps=(
        "The base model is not a field: it is in the server's log. An adapter (lora_path) is named.",
        "prompt_tokens include cached_tokens; cached_tokens count all tiers (device, host, storage).",
        "response_sent_to_client_ts is the first chunk of a stream, but the end of any other answer.",
        "Stage times of older versions are not wall-clock: only those inside the request are used.",
        "Aborts of clients are cancelled; those with a status code are errors.",
        "A retracted request computed its prompt again: flagged; the extra work is in the engine's log.",
        "SGLANG_LOG_REQUEST_EXCEEDED_MS leaves fast requests out: such a file is a biased sample.",
    ),
)
