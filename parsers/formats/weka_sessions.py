"""Coding-agent sessions of kv-cache-tester: one JSON document per session, sub-agents nested inside.

Every entry of `requests` is a record: a request, or the container of a sub-agent, whose own requests follow
it as records. What the counts include is in `FORMAT.semantics`; overlap of sessions is found later
(`record_key`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

import polars as pl

from parsers.clock import flag_list
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.values import (
    Reading,
    content_scope,
    cumulative_tokens,
    number,
    present,
    read_fields,
    relative_origin,
    since,
    whole,
)

if TYPE_CHECKING:
    from parsers.format import Context, Head

TRUE = pl.lit(value=True)
_MARKS = ('"requests"', '"hash_ids"', '"block_size"', '"tool_tokens"', '"system_tokens"')
_REQUEST: Final = {
    "t": "VARCHAR",
    "type": "VARCHAR",
    "model": "VARCHAR",
    "in": "VARCHAR",
    "out": "VARCHAR",
    "hash_ids": ["VARCHAR"],
    "stop": "VARCHAR",
    "api_time": "VARCHAR",
    "ttft": "VARCHAR",
}
_SESSION: Final = {"id": "VARCHAR", "block_size": "VARCHAR", "hash_id_scope": "VARCHAR"}
_FIELDS = ", ".join(f'entry."{name}" AS "{name}"' for name in _REQUEST)
_CONTEXT = ", ".join(f'"{name}"' for name in _SESSION)

# A document is unnested twice: its entries, and the entries inside a sub-agent. `place` and `nested_place`
# keep the order of the file, a sub-agent's requests right behind its container.
_RECORDS = f"""
SELECT * EXCLUDE (session, place, nested_place) FROM (
    WITH sessions AS (SELECT *, row_number() OVER () AS session FROM document),
    entries AS (
        SELECT session, {_CONTEXT}, unnest(requests) AS entry, generate_subscripts(requests, 1) AS place
        FROM sessions
    ),
    nested AS (
        SELECT session, {_CONTEXT}, place, entry.agent_id AS agent_id, entry.t AS agent_t,
            unnest(entry.requests) AS entry, generate_subscripts(entry.requests, 1) AS nested_place
        FROM entries
    )
    SELECT session, place, 0 AS nested_place, false AS nested,
        {_CONTEXT}, NULL AS agent_id, NULL AS agent_t, {_FIELDS}
    FROM entries
    UNION ALL
    SELECT session, place, nested_place, true AS nested, {_CONTEXT}, agent_id, agent_t, {_FIELDS} FROM nested
)
ORDER BY session, place, nested_place
"""


def _recognise(head: Head) -> bool:
    """Most documents are larger than the head: the keys are looked for in its text."""
    return head.text.lstrip().startswith("{") and all(mark in head.text for mark in _MARKS)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    container = pl.col("type").eq_missing(pl.lit("subagent"))
    read = read_fields(frame, _readings(relative_origin(context)))
    rows = read.drop("_flags", "agent_t", "t").hstack(
        frame.select(
            "source_line",
            record_key=_record_key(),
            trace_id=pl.col("id"),
            session_id=pl.concat_str(["id", "agent_id"], separator="/", ignore_nulls=True),
            model_served=present(pl.col("model")),
            operation=pl.lit("chat"),
            stream=pl.col("type").replace_strict(
                {"s": True, "n": False}, default=None, return_dtype=pl.Boolean
            ),
            finish_reason=present(pl.col("stop")),
            status=pl.lit("ok"),
            usage_origin=pl.lit("reported"),
            ids=pl.col("hash_ids").cast(pl.List(pl.Int64), strict=False),
            scope=_scope(context),
            container=container,
            _other=container & ~pl.col("nested"),
        )
    )
    return _with_prefixes(rows, context).drop("ids", "scope", "container", "block_tokens")


def _readings(origin: datetime) -> dict[str, Reading]:
    # A sub-agent's clock starts at 0 at its container's own t.
    of_agent = pl.when(pl.col("nested")).then("agent_t").otherwise(pl.lit("0"))
    offset = number(of_agent, "t of the sub-agent").needed("t of the sub-agent")
    seconds = number(pl.col("t"), "t").needed("t")
    return {
        "agent_t": offset,
        "t": seconds,
        "started_at": since(offset.value + seconds.value, "t", "s", origin),
        "input_tokens": whole(pl.col("in"), "in").needed("in"),
        "output_tokens": whole(pl.col("out"), "out").needed("out"),
        "block_tokens": whole(pl.col("block_size"), "block_size").needed("block_size"),
        "duration_ms": number(pl.col("api_time"), "api_time", factor=1000),
        "ttft_ms": number(pl.col("ttft"), "ttft", factor=1000),
    }


def _scope(context: Context) -> pl.Expr:
    """Local ids hold in one document; `id` alone does not name it, as other releases use the same names."""
    local = pl.concat_str([pl.lit(content_scope(context)), pl.col("id").fill_null("")], separator=" ")
    return pl.when(pl.col("hash_id_scope").eq_missing(pl.lit("global"))).then(pl.lit("weka")).otherwise(local)


def _record_key() -> pl.Expr:
    """A request is known by its time, model and counts: copies and forks of a session repeat them all."""
    parts = ("agent_t", "t", "type", "model", "in", "out", "api_time")
    return pl.concat_str([pl.lit("weka"), *(pl.col(part).fill_null("") for part in parts)], separator="|")


def _with_prefixes(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    blocks = pl.col("ids").list.len().cast(pl.Int64)
    unread = pl.col("ids").list.eval(pl.element().is_null()).list.any()
    fits = blocks == pl.col("input_tokens") // pl.col("block_tokens")
    rows = rows.with_columns(
        ids=pl.when(blocks > 0, fits, ~unread).then("ids"),
        flags=flag_list(
            {"relative_clock": TRUE, "status_assumed": TRUE, "block_size_mismatch": (blocks > 0) & ~fits}
        ),
        _reject=pl.when("container")
        .then(pl.lit("a sub-agent inside a sub-agent is not read"))
        .otherwise(
            pl.coalesce(
                "_reject",
                pl.when(unread).then(pl.lit("hash_ids holds something that is not a whole number")),
            )
        ),
    )
    hashes = context.hasher.chain_ids(rows["ids"], rows["scope"])
    return rows.with_columns(
        hashes.alias("prefix_hashes"),
        prefix_token_counts=cumulative_tokens(
            pl.col("ids").list.len(), pl.col("block_tokens"), pl.col("input_tokens")
        ),
    )


FORMAT = Format(
    name="weka_sessions",
    title="Coding-agent sessions (kv-cache-tester)",
    written_by="callanjfox/kv-cache-tester (Apache-2.0), traces/*.json: recorded Claude Code traffic",
    target=REQUESTS,
    container="json_document",
    recognised_by="a JSON object with block_size, tool_tokens, system_tokens and requests that have hash_ids",
    recognise=_recognise,
    map=_map,
    structure={
        **_SESSION,
        "requests": [{**_REQUEST, "agent_id": "VARCHAR", "requests": [dict(_REQUEST)]}],
    },
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "t is seconds since the session began; there is no wall clock (option `origin`).",
        "All sessions begin at one instant, so they overlap as they never did: peaks over them mean nothing.",
        "A sub-agent is an entry of type subagent with requests of its own, whose t starts at the entry's t.",
        "Blocks of block_size tokens, rounded down: the tokens after the last full block have no id.",
        "Ids are local to a file, shared with its sub-agents; if hash_id_scope is global, all share them.",
        "Sessions may be copies or forks: equal t, type, model, in, out and api_time make one record_key.",
        "in holds the whole prompt; no field tells cached tokens or status; api_time may be null, out 0.",
    ),
)
