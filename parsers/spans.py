"""Spans of calls to models, whichever instrumentation wrote them: which are calls, and what each says.

Belongs here: the tree of a trace, and the mapping of its calls to REQUESTS. Does not belong here: the names
that instrumentations use (`span_names.py`), how a file holds spans (`formats/`).

A span is a call if its operation says so or if it carries usage. What is above a call, `TREE` judges:
- an agent, chain, workflow or tool is no call; one that carries usage while no call below does is rejected;
- a call with usage is a copy of the calls with usage below, unless both its counts differ from their sums;
- a call without usage is the outer half of the call below it;
- an engine's span below a client's span with usage is the same call seen from the other end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.fields import Fields, first_fault
from parsers.routes import endpoint
from parsers.span_names import NAMES, OPERATIONS, OUTER, PROVIDERS, SUMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.format import Context


def sql_list(words: tuple[str, ...] | dict[str, str]) -> str:
    """Words as a list of SQL literals, in brackets left to the caller."""
    return ", ".join(f"'{word}'" for word in words)


def picked(attribute: Callable[[str], str]) -> str:
    """A select list of NAMES.

    Args:
        attribute: gives the SQL of one attribute's value (VARCHAR) by its name.

    """
    return ", ".join(
        f'coalesce({", ".join(attribute(name) for name in names)}, NULL) AS "{column}"'
        for column, names in NAMES.items()
    )


MAX_DEPTH = 64
"""Calls are looked for this far below a span."""

TREE = f"""
judged AS NOT MATERIALIZED (
    SELECT *, lower(operation) IN ({sql_list(SUMS)}) AS sums,
        coalesce(input_tokens, output_tokens) IS NOT NULL AS has_usage,
        NOT coalesce(sums, false)
            AND (has_usage OR coalesce(lower(operation) IN ({sql_list(OPERATIONS)}), false)) AS is_call,
        coalesce(lower(operation) IN ({sql_list(OUTER)}), false) AS is_outer
    FROM spans
),
nodes AS MATERIALIZED (
    SELECT trace_id, span_id, any_value(parent_id) AS parent_id, bool_or(is_call) AS is_call,
        bool_or(is_call AND has_usage) AS carries,
        bool_or(engine IS NOT NULL AND operation IS NULL) AS is_engine,
        any_value(TRY_CAST(input_tokens AS DOUBLE)) AS input,
        any_value(TRY_CAST(output_tokens AS DOUBLE)) AS output
    FROM judged WHERE span_id IS NOT NULL GROUP BY trace_id, span_id
),
walk AS (
    SELECT trace_id, parent_id AS above, span_id AS below, carries, is_engine, input, output, 1 AS depth
    FROM nodes WHERE is_call AND parent_id IS NOT NULL
    UNION ALL
    SELECT w.trace_id, n.parent_id, w.below, w.carries, w.is_engine, w.input, w.output, w.depth + 1
    FROM walk w JOIN nodes n ON n.trace_id = w.trace_id AND n.span_id = w.above
    WHERE n.parent_id IS NOT NULL AND NOT n.carries AND w.depth < {MAX_DEPTH}
),
above AS MATERIALIZED (
    SELECT trace_id, above AS span_id, count(*) AS calls_below,
        count(*) FILTER (carries) AS usage_below,
        count(*) FILTER (carries AND NOT is_engine) AS carriers_below,
        sum(input) FILTER (carries AND NOT is_engine) AS input_below,
        sum(output) FILTER (carries AND NOT is_engine) AS output_below
    FROM walk WHERE above <> below GROUP BY ALL
),
engines AS MATERIALIZED (
    SELECT DISTINCT w.trace_id, w.below AS span_id, true AS client_above
    FROM walk w JOIN nodes n ON n.trace_id = w.trace_id AND n.span_id = w.above
    WHERE w.is_engine AND n.carries
)
SELECT judged.*,
    coalesce(is_call AND has_usage AND TRY_CAST(input_tokens AS DOUBLE) <> input_below
        AND TRY_CAST(output_tokens AS DOUBLE) <> output_below, false) AS differs,
    coalesce(is_call AND CASE WHEN has_usage THEN (carriers_below > 0 AND NOT differs) OR client_above
        ELSE calls_below > 0 END, false) AS is_repeated,
    coalesce(sums AND has_usage AND NOT is_outer AND coalesce(usage_below, 0) = 0, false) AS is_sum_alone
FROM judged
LEFT JOIN above USING (trace_id, span_id)
LEFT JOIN engines USING (trace_id, span_id)
"""
"""SQL that judges every row of `spans` (trace_id, span_id, parent_id, the columns of NAMES)."""


def rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Map judged spans to REQUESTS.

    Args:
        frame: the columns of NAMES and TREE, `started`, `ended`, `first_token`, `status`, `service`,
            `region` (texts), `prompt` and perhaps `tools` (List(String)), `has_unread_count` (Boolean) and `source_line`.
        context: hashes prompts.

    """
    fields = Fields(frame)
    text, whole, number = fields.text, fields.whole, fields.number
    started, ended = fields.instant("started").needed("startTimeUnixNano"), fields.instant("ended")
    first_token, cost = fields.instant("first_token"), fields.money("cost")
    ttft_s, ttft_ms, queue_s = number("ttft_s"), number("ttft_ms"), number("queue_s")
    names = [name for name in NAMES if name.endswith("_tokens")]
    counts = {name: whole(name) for name in names}
    http_status = whole("http_status")
    given = {name: read.value for name, read in counts.items()}
    written, total = given.pop("cache_write_tokens"), given.pop("total_tokens")
    read_beside, written_beside = given.pop("read_beside_tokens"), given.pop("written_beside_tokens")
    is_beside = read_beside.is_not_null() | written_beside.is_not_null()
    given["cache_read_tokens"] = pl.coalesce(given["cache_read_tokens"], read_beside)
    # Others put the id of a web request under that name: several calls may share it.
    of_claude = pl.when(is_beside).then(text("request_of_claude"))
    request_id = pl.coalesce(text("response_id"), of_claude, text("span_id"))
    written = pl.coalesce(written, written_beside)
    failed = text("status").is_in(["2", "STATUS_CODE_ERROR"]) | text("error_type").is_not_null()
    has_usage, is_sum_alone = pl.col("has_usage"), pl.col("is_sum_alone")
    named = text("operation").str.to_lowercase()
    operation = named.replace_strict(OPERATIONS, default="other", return_dtype=pl.String).fill_null("other")
    # Instrumentations state no output for embeddings: they generate nothing.
    embeds = (operation == "embedding") & given["input_tokens"].is_not_null()
    given["output_tokens"] = given["output_tokens"].fill_null(pl.when(embeds).then(0))
    streams = named.str.ends_with("dostream") | first_token.value.is_not_null() | ttft_ms.value.is_not_null()
    mapped = fields.frame.select(
        "source_line",
        request_id=request_id,
        record_key=pl.concat_str(
            text("trace_id"),
            request_id,
            *(
                pl.coalesce(given[name].cast(pl.String), pl.lit(""))
                for name in ("input_tokens", "output_tokens")
            ),
            separator="|",
        ),
        trace_id=text("trace_id"),
        parent_request_id=text("parent_id"),
        started_at=started.value,
        ended_at=ended.value,
        first_token_at=first_token.value,
        ttft_ms=pl.coalesce(ttft_s.value * 1000, ttft_ms.value),
        queue_ms=queue_s.value * 1000,
        project=text("service"),
        region=text("region"),
        **{
            name: text(name) for name in ("session_id", "user", "end_user", "model_requested", "model_served")
        },
        **{name: text(name) for name in ("finish_reason", "service_tier")},
        provider=text("provider").replace(PROVIDERS),
        operation=operation,
        endpoint=endpoint(
            pl.coalesce(pl.concat_str([text("address"), text("port")], separator=":"), text("address"))
        ),
        stream=pl.when(streams.fill_null(value=False))
        .then(pl.lit(value=True))
        .otherwise(text("stream") == "true"),
        **given,
        cache_write_5m_tokens=written,
        _total_tokens=total,
        _cache_outside=pl.when(is_beside).then(pl.lit(value=True)),
        status=pl.when(failed & text("error_type").str.contains(r"(?i)cancel"))
        .then(pl.lit("cancelled"))
        .when(failed)
        .then(pl.lit("error"))
        .otherwise(pl.lit("ok")),
        http_status=http_status.value,
        error_kind=pl.when(failed).then(text("error_type").fill_null("unknown")),
        cost_reported=cost.value,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
        usage_origin=pl.when(has_usage).then(pl.lit("reported")).otherwise(pl.lit("missing")),
        flags=flag_list(
            {
                "usage_differs_from_children": pl.col("differs"),
                "usage_of_failed_call": failed & has_usage,
                "token_field_not_read": pl.col("has_unread_count"),
            }
        ),
        _reject=pl.when(is_sum_alone)
        .then(pl.lit("an agent's sum of usage without the calls that it sums up"))
        .otherwise(
            first_fault(
                [started, ended, first_token, *counts.values(), ttft_s, ttft_ms, queue_s, cost, http_status]
            )
        ),
        _other=~is_sum_alone & (~pl.col("is_call") | pl.col("is_repeated")),
    )
    if not fields.has("prompt"):
        return mapped
    mapped = mapped.with_columns(context.hasher.chain(fields.frame["prompt"], mapped["input_tokens"]))
    return mapped.with_columns(context.hasher.tools(fields.frame["tools"])) if fields.has("tools") else mapped
