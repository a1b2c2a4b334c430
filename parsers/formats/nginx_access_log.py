"""Access logs as text before model servers or gateways: combined format, ingress-nginx, Traefik's common format.

Only requests of a model are rows, see `parsers/access_log.py`; others, and messages between them, are other.
There is no usage. The access log of APISIX with its LLM variables has its own format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import access_log, containers, outcome, routes
from parsers.clock import flag_list
from parsers.durations import before
from parsers.fields import Read
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_INGRESS = (
    r" \d+ (?P<ingress_time>[\d.]+) \[(?P<service>[^\]]*)\] \[[^\]]*\] (?P<upstream_addr>[^ ]+(?:, [^ ]+)*) "
    r"(?:[\d-]+(?:, )?)+ (?:[\d.-]+(?:, )?)+ (?:[\d-]+(?:, )?)+ (?P<request_id>\S+)"
)
_TRAEFIK = r' \d+ "(?P<router>[^"]*)" "(?P<server>[^"]*)" (?P<traefik_ms>\d+)ms'
_LINE = rf'{access_log.COMBINED}(?: "[^"]*" "[^"]*")?(?:{_INGRESS}|{_TRAEFIK})?'
_CALL = re.compile(rf'\[[^\]\[]+\] (?:\S+ )?"[A-Z]+ [^" ?]*?(?:{access_log.CALL_ROUTE})[^"]*" \d{{3}} ')
_BEGINS = re.compile(access_log.COMBINED)
_OF_APISIX = re.compile(r'"(?:ai_chat|ai_stream|traditional_http)" +"')


def _recognise(head: Head) -> bool:
    """Lines of the format that call a model, however many others there are; no JSON lines, which say more."""
    lines = [containers.bare(line) for line in head.lines]
    if _OF_APISIX.search(head.text) or any(line.startswith("{") for line in lines):
        return False
    return any(_CALL.search(line) and _BEGINS.match(line) for line in lines)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = access_log.line_parts(frame, _LINE, pl.col("line").str.contains(_CALL.pattern))
    text = fields.text
    path = routes.endpoint(text("request_uri"))
    ended, none = access_log.logged_at(fields), pl.lit(None, dtype=pl.Int64)
    seconds, traefik = fields.number("request_time", "ingress_time"), fields.number("traefik_ms")
    spent = pl.coalesce(seconds.value * 1000, traefik.value)
    http_status, request_id = fields.whole("status"), text("request_id")
    started = before(ended.value, spent)
    return fields.rows(
        request_id=request_id,
        record_key=pl.concat_str([request_id, ended.value.dt.timestamp("us")], separator="|"),
        started_at=Read(started, ended.fault).needed("time_local"),
        ended_at=pl.when(spent.is_not_null()).then(ended.value),
        duration_ms=spent,
        gateway=pl.when(text("traefik_ms").is_not_null()).then(pl.lit("traefik")).otherwise(pl.lit("nginx")),
        operation=routes.operation(path),
        endpoint=path,
        instance=pl.coalesce(
            access_log.last_upstream(text("upstream_addr")), text("server"), text("service", "router")
        ),
        input_tokens=none,
        output_tokens=none,
        status=outcome.status(http_status.value),
        http_status=http_status,
        flags=flag_list({"whole_second_times": pl.lit(value=True), "end_taken_for_start": spent.is_null()}),
        other=~access_log.is_call(path, text("method")),
    )


FORMAT = Format(
    name="nginx_access_log",
    title="Access log of nginx, ingress-nginx or Traefik, text",
    written_by="nginx (combined), ingress-nginx and Traefik (common) with their default formats, before model APIs",
    target=REQUESTS,
    hop="proxy",
    container="text",
    recognised_by="lines of the combined format with a request of a model's API",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(
        cache_read="absent", cache_write="absent", reasoning="absent", clock="utc", retries="hidden"
    ),
    traps=(
        "There is no usage, no model and no time to the first token: calls and outcomes only.",
        "A line is written when the request has ended, in whole seconds; the start is earlier by its duration.",
        "The combined format has no duration: the end is taken for the start, and flagged.",
        "Without a request id, equal lines of two files are told apart only by their number.",
        "An nginx before and one behind a gateway log one call twice.",
    ),
    priority=6,
)
