"""Calls as LiteLLM logs them: one StandardLoggingPayload per line, as its generic API callback sends them.

Belongs here: the shape of a line. Does not belong here: what is in it (`traffic.py`, `sessions.py`,
`incidents.py`).

Keys, nesting and types are those of LiteLLM 1.108. Left out are fields that an operator may switch off
(`standard_logging_payload_excluded_fields`), among them the price table that fills 10 KB of every line, and
members of `metadata` and `hidden_params` that older versions do not write. Lines are put together from text:
building and serialising a dict for each takes several times as long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from pipelines.synth.company import KEYS, MODELS, NANO_USD, ORGANIZATION, UNKNOWN, Key, Model
from pipelines.synth.incidents import ERRORS
from pipelines.synth.prompts import REDACTED
from pipelines.synth.traffic import CANCELLED, ERROR, RESPONSE_CACHE, SECOND_US, Calls, Ints

_REDACTED_RESPONSE = '{"text":"redacted-by-litellm"}'
_ID_DIGITS = 96
"""Random hexadecimal digits per call: response id, call id, trace id."""


def costs_of(calls: Calls) -> Ints:
    """List price of what each row used, in billionths of a US dollar.

    Zero for own and unpriced models, failures and the response cache: LiteLLM logs no cost for them.
    """

    def rates(name: str, *, above: bool) -> Ints:
        values = []
        for model in MODELS:
            price = model.price.above if above and model.price and model.price.above else model.price
            values.append(getattr(price, name) if price else 0)
        return np.array(values, np.int64)[calls.model]

    cliffs = np.array(
        [(model.price and model.price.cliff_tokens) or np.iinfo(np.int64).max for model in MODELS]
    )
    over = calls.input > cliffs[calls.model]
    read, write = np.maximum(calls.cache_read, 0), np.maximum(calls.cache_write, 0)
    tokens = {
        "input": np.maximum(calls.input, 0) - read - write,
        "cache_read": read,
        "cache_write": write,
        "output": np.maximum(calls.output, 0),
    }
    cost = np.zeros(len(calls), np.int64)
    for name, count in tokens.items():
        cost += count * np.where(over, rates(name, above=True), rates(name, above=False))
    # A provider charges half for a batch; the counts are such that nothing is rounded.
    cost = np.where(calls.is_batch == 1, cost // 2, cost)
    free = (calls.outcome == RESPONSE_CACHE) | (calls.outcome == ERROR)
    return np.where(free, 0, cost)


def lines_of(calls: Calls, cost_nano: Ints, rng: np.random.Generator) -> Iterator[str]:
    """The lines of a day, line ends included, in the order in which calls ended."""
    digits = rng.bytes((int(calls.call.max(initial=-1)) + 1) * _ID_DIGITS // 2).hex()
    order = np.argsort(calls.ended_us, kind="stable")
    columns = (
        calls.key, calls.model, calls.deployment, calls.started_us, calls.ttft_us,
        calls.duration_us, calls.input, calls.cache_read, calls.cache_write, calls.output, calls.reasoning,
        calls.stream, calls.outcome, calls.error, calls.retries, calls.fallbacks, calls.call, calls.id_call,
        calls.trace_call, calls.in_session, calls.limit, calls.is_batch, cost_nano,
    )  # fmt: skip
    rows = zip(*(column[order].tolist() for column in columns), strict=True)
    bodies = calls.bodies
    for row, values in zip(order.tolist(), rows, strict=True):
        yield _line(digits, bodies[row], *values)


def _line(
    digits: str, body: str, key: int, model: int, deployment: int, started: int, ttft: int,
    duration: int, given: int, read: int, write: int, output: int, reasoning: int, stream: int, outcome: int,
    error: int, retries: int, fallbacks: int, call: int, id_call: int, trace: int, in_session: int,
    limit: int, is_batch: int, cost_nano: int,
) -> str:  # fmt: skip
    ended = started + duration
    call_uuid = _uuid(digits, call * _ID_DIGITS + 32)
    trace_uuid = _uuid(digits, trace * _ID_DIGITS + 64)
    has_stream = stream and outcome != RESPONSE_CACHE
    first = started + ttft if has_stream else ended
    response_id = call_uuid
    response, usage = "{}", "{}"
    cost = money(cost_nano)
    if outcome != ERROR:
        spec = MODELS[model]
        place = id_call * _ID_DIGITS
        base_id = f"{_id_prefix(spec)}{digits[place : place + 32]}"
        response_id = f"{base_id}_cache_hit{instant(ended)}" if outcome == RESPONSE_CACHE else base_id
        if given != UNKNOWN:
            usage = _usage(spec, given, read, write, output, reasoning)
        response = (
            _REDACTED_RESPONSE
            if body is REDACTED
            else _response(
                spec, base_id, ended // SECOND_US, usage, is_cut=0 < limit <= output, is_batch=is_batch
            )
        )
    most = f'"max_tokens":{limit},' if limit else ""
    shown = [max(count, 0) for count in (given, output)]
    who, what, hidden = _fragments(key, model, deployment)
    cache_hit = "true" if outcome == RESPONSE_CACHE else "false" if has_stream or outcome == ERROR else "null"
    cache_key = (
        f'"{digits[id_call * _ID_DIGITS : id_call * _ID_DIGITS + 64]}"'
        if outcome == RESPONSE_CACHE
        else "null"
    )
    return (
        f'{{"id":"{response_id}","litellm_call_id":"{call_uuid}","trace_id":"{trace_uuid}",'
        f'"session_id":"{trace_uuid if in_session else ""}",{what}"cache_hit":{cache_hit},'
        f'"stream":{"true" if has_stream else "null"},'
        f'"status":"{"failure" if outcome == ERROR else "success"}",'
        f'"startTime":{instant(started)},"endTime":{instant(ended)},'
        f'"completionStartTime":{instant(first)},"response_time":{instant(first - started)},'
        f'"metadata":{{{who}"usage_object":{usage}}},"cache_key":{cache_key},"response_cost":{cost},'
        f'"total_tokens":{shown[0] + shown[1]},"prompt_tokens":{shown[0]},'
        f'"completion_tokens":{shown[1]},{_caller(key)}"messages":{body},"response":{response},'
        f'"model_parameters":{{{most}"stream":{"true" if stream else "false"}}},'
        f'"hidden_params":{{{hidden}"response_cost":{cost},"additional_headers":{{"x-litellm-attempted-retries":{retries},'
        f'"x-litellm-attempted-fallbacks":{fallbacks}}}}},{_error(outcome, error, model)}}}\n'
    )


def _uuid(digits: str, at: int) -> str:
    """A random UUID (version 4) from 32 hexadecimal digits."""
    d = digits[at : at + 32]
    return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-a{d[17:20]}-{d[20:]}"


def instant(us: int) -> str:
    """Seconds with six decimals."""
    return f"{us // SECOND_US}.{us % SECOND_US:06d}"


def money(nano: int) -> str:
    """US dollars as a JSON number, exact."""
    return f"{nano // NANO_USD}.{nano % NANO_USD:09d}" if nano else "0.0"


def _id_prefix(spec: Model) -> str:
    """How response ids of the provider begin."""
    return "chatcmpl-" if spec.call_type == "acompletion" else "embd-"


def _usage(spec: Model, given: int, read: int, write: int, output: int, reasoning: int) -> str:
    counts = f'"completion_tokens":{output},"prompt_tokens":{given},"total_tokens":{given + output}'
    if spec.states_cache_writes:
        thought = f'{{"reasoning_tokens":{reasoning},"text_tokens":{output - reasoning}}}'
        cached = f'{{"cached_tokens":{read},"cache_creation_tokens":{write}}}'
        more = f',"cache_creation_input_tokens":{write},"cache_read_input_tokens":{read}'
    else:
        thought = f'{{"reasoning_tokens":{reasoning}}}' if spec.reasoning_ratio else "null"
        cached = f'{{"cached_tokens":{read}}}' if read != UNKNOWN else "null"
        more = ""
    return f'{{{counts},"completion_tokens_details":{thought},"prompt_tokens_details":{cached}{more}}}'


def _response(spec: Model, base_id: str, created: int, usage: str, *, is_cut: bool, is_batch: int) -> str:
    if spec.call_type != "acompletion":
        return f'{{"model":"{spec.name}","object":"list","usage":{usage}}}'
    reason, tier = "length" if is_cut else "stop", '"service_tier":"batch",' if is_batch else ""
    return (
        f'{{"id":"{base_id}",{tier}"created":{created},"model":"{spec.name}","object":"chat.completion",'
        f'"choices":[{{"finish_reason":"{reason}","index":0,'
        '"message":{"content":"redacted-by-litellm","role":"assistant"}}],'
        f'"usage":{usage}}}'
    )


@cache
def _fragments(key: int, model: int, deployment: int) -> tuple[str, str, str]:
    """Parts of a line that depend on who calls what: inside metadata, top level, inside hidden_params."""
    spec, who = MODELS[model], KEYS[key]
    team = who.team
    metadata = {
        "user_api_key_hash": who.hash,
        "user_api_key_alias": who.alias,
        "user_api_key_team_id": team.name if team else None,
        "user_api_key_org_id": ORGANIZATION if team else None,
        "user_api_key_user_id": who.user,
        "user_api_key_team_alias": team.name if team else None,
        "user_api_key_end_user_id": who.end_user,
        "user_api_key_request_route": spec.route,
        "user_api_key_auth_metadata": {"cost_center": team.cost_center} if team else {},
    }
    what = {
        "call_type": spec.call_type,
        "custom_llm_provider": spec.provider,
        "model": spec.log_name,
        "model_group": spec.name,
        "model_id": spec.deployments[deployment],
        "api_base": spec.api_bases[deployment],
    }
    hidden = {"model_id": spec.deployments[deployment]}
    return _inside(metadata), _inside(what), _inside(hidden)


def _inside(values: Mapping[str, object]) -> str:
    """The members of a JSON object, without its braces, a comma at the end."""
    return json.dumps(values, separators=(",", ":"))[1:-1] + ","


@cache
def _caller(key: int) -> str:
    who: Key = KEYS[key]
    tags = [f"User-Agent: {who.client.split('/', maxsplit=1)[0]}", f"User-Agent: {who.client}"]
    return _inside(
        {
            "request_tags": tags,
            "end_user": who.end_user,
        }
    )


@cache
def _error(outcome: int, error: int, model: int) -> str:
    """The members that tell success, failure and disconnect apart."""
    spec = MODELS[model]
    unpriced = outcome != ERROR and spec.price is None and not spec.is_own
    debug = {"error_str": "This model isn't mapped yet.", "model": spec.log_name} if unpriced else None
    if outcome == CANCELLED:
        message = "Client disconnected the request"
        information: dict[str, object] = {
            "error_code": "499",
            "error_message": message,
            "error_class": "ClientDisconnected",
        }
    else:
        failure = ERRORS[error]
        message = failure.message
        information = {
            "error_code": str(failure.http_status or ""),
            "error_class": failure.kind,
            "llm_provider": spec.provider if error else "",
            "traceback": "",
            "error_message": message,
        }
        if error:
            information |= {
                "error_rate_limit_category": failure.category,
                "normalized_error": failure.normalized,
            }
    return _inside(
        {
            "error_str": message or None,
            "error_information": information,
            "response_cost_failure_debug_info": debug,
        }
    )[:-1]
