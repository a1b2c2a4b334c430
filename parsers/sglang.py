"""SGLang's account of one request, which its exports, its request log and its answers share.

Belongs here: `meta_info` beside the request's parameters as a row of REQUESTS; lines of its logs. Does not
belong here: where these are kept (`formats/sglang_*.py`), batch lines (`formats/sglang_log.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.durations import span
from parsers.fields import Fields, Read, first_fault
from parsers.format import TokenSemantics
from parsers.metrics import engine_instance

if TYPE_CHECKING:
    from parsers.format import Context

_CLOCK_SLACK = pl.duration(milliseconds=1)
STAMP = (
    r"\[(?:gpu_id=\d+|(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?)"
    r"(?P<ranks>(?: [A-Z_]{2,9}\d{1,5})*))\] "
)
LOGGER_HEAD = r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:,\d{3})? sglang[\w.]* [A-Z]+ "
"""The head of records that Python's logger wrote in its own layout, or as JSON."""
OWN_HEAD = "[${1}] "
"""What `LOGGER_HEAD` is in SGLang's own form."""
_LOGGED = re.compile(LOGGER_HEAD)
START = r"^[^\"'{]*?" + STAMP + r"server_args=ServerArgs\("
MODEL = (r"served_model_name='([^']+)'", r"model_path='([^']+)'")
_UNNAMED = STAMP.replace("?P<stamp>", "?:").replace("?P<ranks>", "?:")
IS_REQUEST = re.compile(
    rf"^(?:{_UNNAMED})?(?:(?:Finish|Receive(?: OpenAI)?): obj=|"
    r'\{"timestamp": ?"[^"]+", ?"event": ?"request\.(?:received|finished))'
)
"""What the request log (`--log-requests`) writes: as Python's text, or as JSON."""
PARAMETERS = {
    **dict.fromkeys(("model", "lora_path", "stream", "text"), "VARCHAR"),
    "sampling_params": {"max_new_tokens": "VARCHAR"},
    "session_params": {"id": "VARCHAR"},
}
NAMES = (
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
META = {
    "finish_reason": {"type": "VARCHAR", "status_code": "VARCHAR", "err_type": "VARCHAR"},
    **dict.fromkeys((*NAMES, *_INSTANTS, "num_retractions", "total_retractions", "dp_rank"), "VARCHAR"),
}
"""What is read of `meta_info`."""
SEMANTICS = TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc")
TRAPS = (
    "prompt_tokens include cached_tokens; cached_tokens count all tiers (device, host, storage).",
    "response_sent_to_client_ts is the first chunk of a stream, but the end of any other answer.",
    "Stage times of older versions are not wall-clock: only those inside the request are used.",
    "Aborts of clients are cancelled; those with a status code are errors.",
    "A retracted request computed its prompt again: flagged; the extra work is in the engine's log.",
)


def as_sglang(line: str) -> str:
    """A line with SGLang's own head, if it has Python's; for recognising."""
    return _LOGGED.sub(r"[\1] ", line)


def request_rows(fields: Fields, context: Context) -> pl.DataFrame:
    """Rows of finished requests.

    Args:
        fields: META, and the request's parameters below `request_parameters`. Also, where they are known: `logged_at`
            (when the record was written), `base_model`, `service`.
        context: of the source.

    """
    text = fields.text
    received, finished = fields.instant("request_received_ts"), fields.instant("request_finished_ts")
    sent, prefilled = fields.instant("response_sent_to_client_ts"), fields.instant("prefill_finished_time")
    latency, queue = fields.number("e2e_latency"), fields.number("queue_time")
    counts = {name: fields.whole(name) for name in NAMES[1:5]}
    limit = fields.whole("request_parameters.sampling_params.max_new_tokens")
    retractions = fields.whole("num_retractions", "total_retractions")
    logged = fields.instant("logged_at")
    ended = pl.coalesce(finished.value, received.value + _seconds(latency), sent.value, logged.value)
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
        model_served=text("request_parameters.lora_path", "request_parameters.model", "base_model"),
        operation=pl.when(embeds).then(pl.lit("embedding")),
        stream=streamed,
        instance=engine_instance(
            pl.coalesce(pl.lit(context.options.get("instance"), pl.String), text("service")), text("dp_rank")
        ),
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
        _reject=first_fault([started, logged, finished, sent, latency, queue, *counts.values(), limit, code]),
        _other=pl.lit(value=False),
    )
    return rows.with_columns(_hashes(fields, rows, context))


def _seconds(read: Read) -> pl.Expr:
    return span(pl.when(read.value >= 0).then(read.value * 1000))


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
