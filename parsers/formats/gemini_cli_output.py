"""What `gemini -p` prints with --output-format json (an object with stats) or stream-json (events, stats in the last).

Sessions have their own format (`gemini_cli_chat`), and so has telemetry (`otlp_agent_events`, `agent_events_log`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers import agent_results
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Head

_TOKENS = ("input", "prompt", "candidates", "cached", "thoughts", "tool", "total")
_FLAT = ("input_tokens", "output_tokens", "cached", "total_tokens")
_STRUCT = ", ".join(f'"{name}" VARCHAR' for name in _TOKENS)
_OF_MODEL = (
    f"MAP(VARCHAR, STRUCT(api STRUCT(totalRequests VARCHAR, totalErrors VARCHAR, totalLatencyMs VARCHAR), "
    f"tokens STRUCT({_STRUCT}), {', '.join(f'{name} VARCHAR' for name in _FLAT)}))"
)
_RECORDS = """
, sessions AS (
    SELECT max(session_id) AS session, max(timestamp) AS ended, max(model) AS model FROM document
), named AS (
    SELECT row_number() OVER () AS number, coalesce(document.session_id, sessions.session) AS session,
        coalesce(document.timestamp, sessions.ended) AS ended, sessions.model AS named, status, error, stats
    FROM document CROSS JOIN sessions WHERE stats IS NOT NULL
), by_model AS (
    SELECT * EXCLUDE (entry), entry.key AS model, entry.value AS stated
    FROM (SELECT *, unnest(map_entries(stats.models)) AS entry FROM named)
), rows AS (
    SELECT number, session, ended, model, status, error, stats.duration_ms AS duration_ms,
        TRY_CAST(coalesce(stated.tokens.prompt, stated.tokens.input, stated.input_tokens) AS BIGINT)
            + coalesce(TRY_CAST(stated.tokens.tool AS BIGINT), 0) AS input,
        coalesce(stated.tokens.cached, stated.cached) AS cached,
        TRY_CAST(coalesce(stated.tokens.candidates, stated.output_tokens) AS BIGINT)
            + coalesce(TRY_CAST(stated.tokens.thoughts AS BIGINT), 0) AS output,
        stated.tokens.thoughts AS thoughts, coalesce(stated.tokens.total, stated.total_tokens) AS total
    FROM by_model
    UNION ALL BY NAME
    SELECT number, session, ended, named AS model, status, error, stats.duration_ms AS duration_ms,
        TRY_CAST(stats.input_tokens AS BIGINT) AS input, stats.cached AS cached,
        TRY_CAST(stats.output_tokens AS BIGINT) AS output, stats.total_tokens AS total
    FROM named WHERE coalesce(cardinality(stats.models), 0) = 0
)
SELECT concat_ws('|', session, ended, model, input, output) AS key, session, ended, model, duration_ms, cached,
    thoughts, total, input::VARCHAR AS input, output::VARCHAR AS output,
    CASE WHEN error IS NOT NULL OR status = 'error' THEN coalesce(error.type, 'unknown') END AS failure
FROM rows ORDER BY number, model
"""


def _is_end(item: dict[str, Any]) -> bool:
    stats = item.get("stats")
    if not isinstance(stats, dict):
        return False
    if item.get("type") == "result":
        return {"total_tokens", "input_tokens"} <= stats.keys()
    models = stats.get("models")
    if not isinstance(models, dict) or not {"response", "error", "session_id"} & item.keys():
        return False
    return all(isinstance(each, dict) and "tokens" in each for each in models.values())


def _is_begun(item: dict[str, Any]) -> bool:
    return item.get("type") == "init" and {"session_id", "model", "timestamp"} <= item.keys()


def _recognise(head: Head) -> bool:
    return any(_is_end(item) or _is_begun(item) for item in head.objects)


FORMAT = Format(
    name="gemini_cli_output",
    title="Gemini CLI output of runs",
    written_by="gemini -p --output-format json or stream-json, and forks that keep its shape",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="JSON objects with stats of models (or of input_tokens and total_tokens), or a stream's init",
    recognise=_recognise,
    retells_sessions=True,
    map=agent_results.rows,
    structure={
        **dict.fromkeys(("type", "session_id", "timestamp", "model", "status"), "VARCHAR"),
        "error": {"type": "VARCHAR"},
        "stats": {"models": _OF_MODEL, **dict.fromkeys((*_FLAT, "duration_ms"), "VARCHAR")},
    },
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", retries="hidden"),
    traps=(
        "Of json, prompt is the whole input and input what the cache left of it; thoughts and the tokens of tool",
        "results (tool) are beside candidates and prompt: they are added.",
        "Of stream-json, input_tokens is the whole prompt; only total_tokens shows the thoughts.",
        "A run that is cut off states nothing.",
        *agent_results.TRAPS,
    ),
)
