"""Bodies of APIs inside of what people write around them: a line's wrapper, a batch's result, a proxy's log.

Belongs here: where a line keeps the body, what stands beside it (time, owner, HTTP status), and the time of a body
that states none. Does not belong here: what a body means (`formats/`), streams of events (`event_streams.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import routes
from parsers.clock import flag_list
from parsers.fields import Fields, Read
from parsers.json_heads import mostly
from parsers.json_text import decoded
from parsers.records import INSTANT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parsers.format import Context, Head, Structure

PLACES = ("response.body", "response", "response_body", "modelOutput", "body")
"""Where a line keeps its body, the innermost first; else the line is the body. It may be JSON text in a string."""

_TIMES = (
    *("started_at", "start_time", "request_time", "timestamp", "@timestamp", "time", "ts", "datetime"),
    *("processed_time", "logged_at"),
)
TIMES = {*_TIMES, "created", "created_at"}
"""Fields that may say when; lines that are no body of an API are records only with one of these."""
_OWNERS = ("user", "team", "project", "session_id", "trace_id", "provider")
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_WRAPPER: Structure = {
    # The last two tell a line of another kind from one that can't be read.
    **dict.fromkeys(
        (*_TIMES, *_OWNERS, "ended_at", "custom_id", "key", "recordId", "level", "event"), "VARCHAR"
    ),
    **dict.fromkeys(("latency_ms", "duration_ms", "ttft_ms", "url", "uri", "http_status"), "VARCHAR"),
    "modelInput": dict.fromkeys(("model", *_LIMITS), "VARCHAR"),
    "request": {
        **dict.fromkeys(("model", "modelId", "stream", "url", *_LIMITS), "VARCHAR"),
        "body": dict.fromkeys(("model", "stream", *_LIMITS), "VARCHAR"),
    },
}
_BESIDE: Structure = {"status_code": "VARCHAR", "request_id": "VARCHAR"}
_MODEL_IN_ROUTE = r"/(?:models?|deployments)/([^/?#]+?)(?:$|:[a-zA-Z]+(?:$|[?#])|[/?#])"
# Lines of gateways and observability hold such bodies, too, and say more; they carry one of these.
_FOREIGN = {
    *("call_type", "spend", "startTime", "hash_ids", "resourceSpans", "timings", "sessionId", "uuid"),
    *("schemaType", "latencies", "consumer", "_source", "isSidechain", "ai_log", "request_created_at"),
    *("ai_org", "run_type", "fallback_index", "body_bytes_sent", "upstream_response_time", "response_code"),
    "destination_model",
}
_MAX_NESTED_CHARACTERS = 1 << 20


def structure(body: Structure, places: Sequence[str] = PLACES) -> tuple[Structure, dict[str, Structure]]:
    """`Format.structure` and `Format.embedded` of lines that are a body or hold it in one of the places."""
    roots: dict[str, Structure] = {}
    for place in reversed(places):
        root, _, inner = place.partition(".")
        held = {**body, **_BESIDE}
        roots[root] = {**roots.get(root, {}), inner: held} if inner else {**held, **roots.get(root, {})}
    return {**_WRAPPER, **_BESIDE, **body, **dict.fromkeys(roots, "JSON")}, roots


def body_of(item: dict[str, Any], places: Sequence[str] = PLACES) -> dict[str, Any]:
    """The body that a line holds, or the line itself."""
    for place in places:
        found: Any = item
        for part in place.split("."):
            found = _opened(found.get(part)) if isinstance(found, dict) else None
        if isinstance(found, dict):
            return found
    return item


def _opened(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("{") or len(value) > _MAX_NESTED_CHARACTERS:
        return value
    try:
        return decoded(value)
    except (ValueError, RecursionError):
        return None


def recognise(head: Head, is_body: Callable[[dict[str, Any]], bool], places: Sequence[str] = PLACES) -> bool:
    """Whether most objects of a head are, or hold, such bodies, and are no events and of no other log."""

    def is_record(item: dict[str, Any]) -> bool:
        is_event = str(item.get("type")).startswith("response.")
        return not (is_event or _FOREIGN & item.keys()) and is_body(body_of(item, places))

    return mostly(head.objects, is_record)


def is_mixed(
    head: Head, is_another: Callable[[dict[str, Any]], bool], places: Sequence[str] = PLACES
) -> bool:
    """Whether a head holds bodies of another API, too: logs of one's own may."""
    return any(is_another(body_of(item, places)) for item in head.objects)


def is_of_gemini(body: dict[str, Any]) -> bool:
    """Whether a body states its usage as Gemini does."""
    return isinstance(body.get("usageMetadata", body.get("usage_metadata")), dict)


def lifted(raw: pl.DataFrame, body: Structure, places: Sequence[str] = PLACES) -> Fields:
    """The fields of bodies by their own names, wherever a line keeps them; those of wrappers beside them."""

    def at(place: str, name: str) -> pl.Expr:
        root, *inner = [*place.split("."), name]
        found = pl.col(root)
        for part in inner:
            found = found.struct.field(part)
        return found

    roots = {place.split(".")[0] for place in places}
    filled = [place for place in places if raw[place.split(".")[0]].null_count() < raw.height]
    if not filled:
        return Fields(raw.drop(roots))
    names = {**body, **_BESIDE}
    coalesced = {name: pl.coalesce(*(at(place, name) for place in filled), name) for name in names}
    return Fields(raw.with_columns(**coalesced).drop(roots))


def started(
    fields: Fields, context: Context, *own: str, untimed: pl.Expr | None = None
) -> tuple[Read, pl.Expr]:
    """When a call began, and the flag for what was assumed: the wrapper's time, else the body's own.

    Where the API states none (`untimed`; all bodies, unless given) the file's time stands in: `time_from_file`.
    """
    # Those that are there: a reject names the first one.
    stated = fields.instant(*filter(fields.has, (*_TIMES, *own)))
    nothing = stated.value.is_null() & stated.fault.is_null()
    from_file = nothing if untimed is None else nothing & untimed.fill_null(value=False)
    if context.modified_at is None:
        from_file = pl.lit(value=False)
    file_time = pl.lit(context.modified_at, dtype=INSTANT)
    value = pl.when(from_file).then(file_time).otherwise(stated.value)
    return Read(value, stated.fault).needed("timestamp" if untimed is None else own[0]), flag_list(
        {"time_from_file": from_file}
    )


def http_status(fields: Fields, *own: str) -> pl.Expr:
    """The HTTP status beside a body (Int32); words are none."""
    code = fields.text("status_code", "http_status", *own).cast(pl.Int32, strict=False)
    return pl.when(code.is_between(0, 999)).then(code)


def is_batch(fields: Fields) -> pl.Expr:
    """Whether the line is a batch's result: it carries the name that the client gave to its part."""
    return fields.text("custom_id", "key", "recordId", "processed_time").is_not_null()


def _address(fields: Fields) -> pl.Expr:
    return fields.text("url", "uri", "request.url")


def operation(fields: Fields) -> pl.Expr:
    """The operation that the address stands for, if the line has one."""
    return routes.operation(_address(fields))


def columns(fields: Fields) -> dict[str, Read | pl.Expr]:
    """What wrappers say of a call, as columns of REQUESTS."""
    address = _address(fields)
    in_route = address.str.extract(_MODEL_IN_ROUTE, 1).str.replace_all("(?i)%3a", ":")
    return {
        **{name: fields.text(name) for name in _OWNERS},
        "ended_at": fields.instant("ended_at"),
        "duration_ms": fields.number("duration_ms", "latency_ms"),
        "ttft_ms": fields.number("ttft_ms"),
        "endpoint": routes.endpoint(address),
        "model_requested": pl.coalesce(
            fields.text("request.model", "request.modelId", "request.body.model", "modelId"), in_route
        ),
        "stream": fields.truth("request.stream", "request.body.stream").value,
        "max_output_tokens": fields.whole(
            "max_output_tokens",
            *(f"{at}.{name}" for at in ("request", "request.body", "modelInput") for name in _LIMITS),
        ),
    }


def outdone(record: pl.Expr, is_better: pl.Expr | None = None) -> pl.Expr:
    """Whether another statement of the same record is to be kept: a better one, else a later one.

    Streams that were written down chunk by chunk state the answer so far in each.
    """
    better = pl.lit(value=True) if is_better is None else is_better
    order = pl.struct(better.alias("better"), pl.int_range(pl.len()).alias("place")).rank("ordinal")
    is_outdone: pl.Expr = order.over(record) < pl.len().over(record)
    return is_outdone.fill_null(value=False) & record.is_not_null()
