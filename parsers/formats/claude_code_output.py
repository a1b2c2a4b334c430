"""What `claude -p` prints with --output-format json or stream-json, and the Agent SDK's messages: results of runs.

A result sums up a run by model, sub-agents included. Messages of a run without a result (it was cut off) are calls.
Sessions below projects/ have their own format (`claude_code_transcript`), streams of the API, too (`anthropic_stream`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers import agent_results
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Head

_USAGE = {
    **dict.fromkeys(("input_tokens", "output_tokens"), "VARCHAR"),
    **dict.fromkeys(("cache_read_input_tokens", "cache_creation_input_tokens"), "VARCHAR"),
    "cache_creation": {"ephemeral_1h_input_tokens": "VARCHAR"},
}
_OF_MODEL = (
    "MAP(VARCHAR, STRUCT(inputTokens VARCHAR, outputTokens VARCHAR, cacheReadInputTokens VARCHAR, "
    "cacheCreationInputTokens VARCHAR, costUSD VARCHAR))"
)
_STRUCTURE = {
    **dict.fromkeys(("type", "subtype", "session_id", "uuid", "model", "cwd", "timestamp"), "VARCHAR"),
    **dict.fromkeys(("is_error", "duration_ms", "total_cost_usd"), "VARCHAR"),
    "usage": _USAGE,
    "modelUsage": _OF_MODEL,
    "message": {**dict.fromkeys(("id", "model"), "VARCHAR"), "usage": _USAGE},
}
_COUNTS = """{at}.input_tokens AS input, {at}.cache_read_input_tokens AS cached,
    {at}.cache_creation_input_tokens AS written, {at}.cache_creation.ephemeral_1h_input_tokens AS written_1h,
    {at}.output_tokens AS output"""
# A result that no model worked for has an empty modelUsage.
_RECORDS = f"""
, runs AS (
    SELECT session_id AS session, any_value(cwd) AS cwd, any_value(model) AS model, max(timestamp) AS ended
    FROM document GROUP BY session_id
), results AS (
    SELECT document.*, concat_ws('|', coalesce(uuid, session_id), CASE WHEN uuid IS NULL THEN duration_ms END) AS key,
        CASE WHEN is_error = 'true' OR subtype LIKE 'error%' THEN coalesce(subtype, 'error') END AS failure,
        coalesce(cardinality(modelUsage), 0) > 0 AS is_split
    FROM document WHERE type = 'result'
), by_model AS (
    SELECT * EXCLUDE (entry), entry.key AS name, entry.value AS stated
    FROM (SELECT *, unnest(map_entries(modelUsage)) AS entry FROM results WHERE is_split)
), rows AS (
    SELECT concat(key, '|', name) AS key, session_id AS session, name AS model, duration_ms, failure,
        stated.costUSD AS cost, false AS is_call, stated.inputTokens AS input, stated.cacheReadInputTokens AS cached,
        stated.cacheCreationInputTokens AS written, NULL AS written_1h, stated.outputTokens AS output
    FROM by_model
    UNION ALL BY NAME
    SELECT key, session_id AS session, duration_ms, failure, total_cost_usd AS cost, false AS is_call,
        {_COUNTS.format(at="usage")}
    FROM results WHERE NOT is_split
    UNION ALL BY NAME
    SELECT * FROM (
        SELECT message.id AS key, session_id AS session, message.model AS model, true AS is_call,
            {_COUNTS.format(at="message.usage")}
        FROM document WHERE type = 'assistant' AND message.usage IS NOT NULL AND message.model <> '<synthetic>'
            AND session_id NOT IN (SELECT session_id FROM results WHERE session_id IS NOT NULL)
    ) QUALIFY row_number() OVER (PARTITION BY key ORDER BY TRY_CAST(output AS BIGINT) DESC NULLS LAST) = 1
)
SELECT rows.* EXCLUDE (model, is_call), coalesce(rows.model, runs.model) AS model, is_call::VARCHAR AS is_call,
    runs.cwd, runs.ended
FROM rows LEFT JOIN runs USING (session) ORDER BY rows.key
"""


def _is_event(item: dict[str, Any]) -> bool:
    kind = item.get("type")
    is_result = kind == "result" and {"subtype", "duration_api_ms"} <= item.keys()
    is_init = kind == "system" and item.get("subtype") == "init"
    return "session_id" in item and "sessionId" not in item and (is_result or is_init)


def _recognise(head: Head) -> bool:
    return any(map(_is_event, head.objects))


FORMAT = Format(
    name="claude_code_output",
    title="Claude Code output of runs",
    written_by="claude -p --output-format json or stream-json; messages of the Claude Agent SDK",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="JSON objects with session_id: type result with duration_api_ms, or type system of subtype init",
    recognise=_recognise,
    retells_sessions=True,
    map=agent_results.rows,
    structure=_STRUCTURE,
    records=_RECORDS,
    semantics=TokenSemantics(
        cache_read="outside", cache_write="outside", reasoning="inside", retries="hidden", money="USD"
    ),
    traps=(
        "modelUsage has all models of a run, sub-agents' too; usage and the messages are of its main thread only.",
        "Messages state output_tokens as they were when the answer began: they count only where a run has no result.",
        "modelUsage does not say how long cache writes last: they count as those of 5 minutes.",
        "costUSD is the client's own estimate from its price list. Each result is of its own run, resumed ones too.",
        *agent_results.TRAPS,
    ),
)
