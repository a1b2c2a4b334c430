"""What access logs of gateways and proxies share: dashes for nothing, routes of calls, Envoy's outcomes.

Belongs here: readings that the formats of several proxies need. Does not belong here: what one product logs
(`formats/`), statuses and routes of any log (`outcome.py`, `routes.py`).
"""

from __future__ import annotations

import polars as pl

from parsers import containers, outcome, routes
from parsers.fields import Fields, Read

NOTHING = ("-", "")
"""What proxies write for a variable without a value."""
ATTRIBUTION = {
    "organization": ("x-organization-id", "x-org-id", "x_organization_id", "x_org_id", "organization"),
    "team": ("x-team-id", "x-team", "x-tenant-id", "x_team_id", "x_team", "x_tenant_id", "team", "tenant"),
    "project": ("x-project", "x-app", "x-app-id", "x_project", "x_app", "x_app_id", "project", "app"),
    "user": ("x-user-id", "x-user", "x-user-email", "x_user_id", "x_user", "x_user_email"),
    "session_id": ("session.id", "x-session-id", "x_session_id", "session_id"),
}
"""Log keys under which operators keep the headers that say whose a call is, by column."""
CALL_ROUTE = (
    r"(?:/v\d\w*/|/openai/)(?:[\w.@%-]+/)*(?:completions|messages|responses|embeddings|rerank|moderations"
    r"|images/\w+|audio/\w+|realtime)(?:$|[?/\" ])|/chat/completions\b|/completion(?:$|[?\" ])"
    r"|/api/(?:chat|generate|embed|embeddings)(?:$|[?\" ])|/generate(?:_stream)?(?:$|[?\" ])"
    r"|:(?:streamG|g)enerateContent\b|/model/[^/ ]+/(?:converse|invoke)\b"
)
COMBINED = (
    r"^(?P<remote_addr>\S+) \S+ \S+ \[(?P<time_local>[^\]]+)\] (?:\S+ )?"
    r'"(?P<method>[A-Z]+) (?P<request_uri>\S+)[^"]*" (?P<status>\d{3}) (?:\d+|-)(?: (?P<request_time>\d+\.\d+))?'
)
"""Beginning of a line of the combined format, a host before the request and a time after the size allowed."""
LOCAL_TIME = "%d/%b/%Y:%H:%M:%S %z"
_NO_CALL = r"/messages/(?:count_tokens|batches)|/(?:responses|completions)/[\w-]+(?:$|[/?])"
_BY_GET = r"/realtime\b"
_HARMLESS_FLAGS = r"^(?:(?:DC|DI|FI|RLSE)(?:,|$))*$"
_CLIENT_GONE = r"(?:^|,)DC(?:,|$)"
_REASON = r"^([a-z][a-z0-9_.]*)"
_ANSWERED = "via_upstream"


def fields_of(frame: pl.DataFrame) -> Fields:
    """The fields of a chunk, a dash or blank of a proxy being no value."""
    fields = Fields(frame)
    fields.frame = fields.frame.with_columns(pl.col(pl.String).replace(NOTHING, None))
    return fields


def line_parts(frame: pl.DataFrame, pattern: str, where: pl.Expr) -> Fields:
    """The wanted lines of a text log, taken apart by the names in a pattern; all null for the others.

    `where` is asked of the lines as they stand in the file, the pattern of what the proxy wrote.
    """
    bare = containers.unwrapped(frame, where)
    parts = bare.select("source_line", pl.col("line").str.extract_groups(pattern).alias("parts"))
    lines = frame.select("source_line")
    return fields_of(lines.join(parts.unnest("parts"), on="source_line", how="left", maintain_order="left"))


def logged_at(fields: Fields, *names: str) -> Read:
    """When a line was written, which is when the request ended: `time_local` has nginx's own notation."""
    at, local = fields.instant(*names), fields.instant("time_local", unit=LOCAL_TIME)
    return Read(pl.coalesce(at.value, local.value), pl.coalesce(at.fault, local.fault))


def last_upstream(addresses: pl.Expr) -> pl.Expr:
    """The upstream that answered, of the list of those that were tried."""
    return addresses.str.extract(r"([^\s,]+)$")


def attribution(fields: Fields) -> dict[str, pl.Expr]:
    """Whose a call is, from headers that the operator logs for that."""
    return {column: fields.text(*names) for column, names in ATTRIBUTION.items()}


def is_call(path: pl.Expr, method: pl.Expr) -> pl.Expr:
    """Whether a request asks a model: its route is one of a known API, and it brings a body."""
    route = routes.endpoint(path)
    sends = (method == "POST").fill_null(value=True) | route.str.contains(_BY_GET)
    return (route.str.contains(CALL_ROUTE) & ~route.str.contains(_NO_CALL) & sends).fill_null(value=False)


def known_operation(path: pl.Expr) -> pl.Expr:
    """The operation of a path; null for routes that operators name as they like."""
    operation = routes.operation(path)
    return pl.when(operation != "other").then(operation)


def envoy_outcome(fields: Fields, *kinds: str) -> dict[str, Read | pl.Expr]:
    """How a call ended, by Envoy: flags tell of answers that broke off after a status of 200.

    `kinds` are fields that name the class of an error.
    """
    code, flags = fields.whole("response_code"), fields.text("response_flags")
    status = outcome.status(
        code.value,
        failed=~flags.str.contains(_HARMLESS_FLAGS),
        cancelled=flags.str.contains(_CLIENT_GONE),
    )
    reason = fields.text("response_code_details").str.extract(_REASON)
    named = pl.coalesce(
        outcome.error_kind(fields.text(*kinds)),
        pl.when(reason != _ANSWERED).then(reason),
        flags.str.extract(r"^(\w+)"),
    )
    return {"status": status, "http_status": code, "error_kind": pl.when(status != "ok").then(named)}
