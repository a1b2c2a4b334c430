"""The usage object of OpenAI-style APIs and of what speaks their dialect, under all the names in use.

Belongs here: the structure of a usage object and the reading of its counts. Does not belong here: where a log
keeps the object (`formats/`), and what its counts include (`parsers/normalise.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.fields import Fields, Read

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WRITES = ("cache_creation_tokens", "cache_write_tokens", "cache_creation_input_tokens")
_OUTPUT_DETAILS = dict.fromkeys(
    ("reasoning_tokens", "thinking_tokens", "audio_tokens", "image_tokens"), "VARCHAR"
)
_LIFETIMES = {"ephemeral_5m_input_tokens": "VARCHAR", "ephemeral_1h_input_tokens": "VARCHAR"}
_INPUT_DETAILS = {
    **dict.fromkeys(("cached_tokens", *_WRITES, "audio_tokens", "image_tokens"), "VARCHAR"),
    "cache_creation_token_details": _LIFETIMES,
}

USAGE = {
    "prompt_tokens": "VARCHAR",
    "completion_tokens": "VARCHAR",
    "input_tokens": "VARCHAR",
    "output_tokens": "VARCHAR",
    "total_tokens": "VARCHAR",
    "cache_read_input_tokens": "VARCHAR",
    "cache_creation_input_tokens": "VARCHAR",
    "cache_creation": _LIFETIMES,
    "cached_tokens": "VARCHAR",
    "prompt_cache_hit_tokens": "VARCHAR",
    "num_cached_tokens": "VARCHAR",
    "reasoning_tokens": "VARCHAR",
    "prompt_tokens_details": _INPUT_DETAILS,
    "input_tokens_details": _INPUT_DETAILS,
    "input_token_details": _INPUT_DETAILS,
    "completion_tokens_details": _OUTPUT_DETAILS,
    "output_tokens_details": _OUTPUT_DETAILS,
    "output_token_details": _OUTPUT_DETAILS,
}
"""Names of OpenAI chat, Responses and Realtime (singular details), Anthropic, LiteLLM (which has both),
DeepSeek, Mistral, Moonshot, Qwen, Perplexity."""

ITERATION = {
    **dict.fromkeys(("input_tokens", "output_tokens"), "VARCHAR"),
    **dict.fromkeys(("cache_read_input_tokens", "cache_creation_input_tokens"), "VARCHAR"),
    "cache_creation": _LIFETIMES,
}
"""A member of Anthropic's `usage.iterations`: the message, and what ran beside it (compactions, advisors)."""

_INPUT_SIDE = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_OUTPUT_SIDE = ("completion_tokens_details", "output_tokens_details", "output_token_details")

_ANTHROPIC = {"cache_read_input_tokens", "cache_creation_input_tokens", "server_tool_use"}


def is_anthropic(stated: Any) -> bool:
    """Whether a usage object is in Anthropic's dialect, which leaves the cache out of its input."""
    if not isinstance(stated, dict) or {"total_tokens", "prompt_tokens"} & stated.keys():
        return False
    return {"input_tokens", "output_tokens"} <= stated.keys() and bool(_ANTHROPIC & stated.keys())


def leaves_cache_out(fields: Fields, usage: str) -> pl.Expr:
    """The same of records that were read; null where nothing tells."""
    at = f"{usage}." if usage else ""
    of_openai = fields.text(f"{at}total_tokens", f"{at}prompt_tokens").is_not_null()
    cache = fields.text(f"{at}cache_read_input_tokens", f"{at}cache_creation_input_tokens")
    return pl.when(of_openai).then(pl.lit(value=False)).when(cache.is_not_null()).then(pl.lit(value=True))


@dataclass(frozen=True)
class Counts:
    """The token counts of a row as the source states them."""

    prompt: Read
    completion: Read
    total: Read
    cache_read: Read
    cache_write: Read
    cache_write_5m: Read
    cache_write_1h: Read
    reasoning: Read
    audio_input: Read
    audio_output: Read
    image_input: Read
    image_output: Read

    @property
    def readings(self) -> tuple[Read, ...]:
        """All of them."""
        return tuple(vars(self).values())


def _larger(one: Read, other: Read) -> Read:
    """Two names of one number: the larger, as some versions leave one at 0 (LiteLLM issue 11789)."""
    return Read(pl.max_horizontal(one.value, other.value), pl.coalesce(one.fault, other.fault))


def counts(fields: Fields, objects: Sequence[str], row: str = "") -> Counts:
    """Read all counts of a record.

    Args:
        fields: the record's fields.
        objects: dotted names of its usage objects, the best one first; "" if the record itself is one.
        row: prefix of counts that the record states beside them ("" for top level); they come first.

    """

    def there(names: Iterable[str]) -> Read:
        # A reject calls a count by the first name: only those that the chunk has.
        return fields.whole(*filter(fields.has, names))

    def read(*names: str) -> Read:
        return there(f"{at}.{name}" if at else name for at in objects for name in names)

    def total(*names: str) -> Read:
        return there(
            [
                *(f"{row}{name}" for name in names),
                *(f"{at}.{name}" for at in objects if at for name in names),
            ]
        )

    def inside(name: str) -> tuple[str, ...]:
        return tuple(f"{at}.{name}" for at in _INPUT_SIDE)

    def lasting(life: str) -> Read:
        # LiteLLM keeps Anthropic's split inside of OpenAI's details.
        name = f"ephemeral_{life}_input_tokens"
        return read(f"cache_creation.{name}", *inside(f"cache_creation_token_details.{name}"))

    def generated(name: str) -> tuple[str, ...]:
        return tuple(f"{at}.{name}" for at in _OUTPUT_SIDE)

    return Counts(
        prompt=total("prompt_tokens", "input_tokens"),
        completion=total("completion_tokens", "output_tokens"),
        total=total("total_tokens"),
        cache_read=_larger(
            read("cache_read_input_tokens"),
            read(*inside("cached_tokens"), "cached_tokens", "prompt_cache_hit_tokens", "num_cached_tokens"),
        ),
        cache_write=_larger(
            read("cache_creation_input_tokens"),
            read(*(place for name in _WRITES for place in inside(name))),
        ),
        cache_write_5m=lasting("5m"),
        cache_write_1h=lasting("1h"),
        reasoning=read(*generated("reasoning_tokens"), *generated("thinking_tokens"), "reasoning_tokens"),
        audio_input=read(*inside("audio_tokens")),
        audio_output=read(*generated("audio_tokens")),
        image_input=read(*inside("image_tokens")),
        image_output=read(*generated("image_tokens")),
    )


def iterated(counts: Counts, fields: Fields, usage: str) -> Counts:
    """Counts of a message and of what ran beside it: Anthropic bills all `iterations`, the message is one.

    The top level may state less than their sum, so the larger of both counts.
    """
    column = f"{usage}.iterations"
    if not fields.has(column):
        return counts

    def summed(read: Read, *path: str) -> Read:
        each = pl.element()
        for name in path:
            each = each.struct.field(name)
        whole = pl.col(column).list.eval(each.cast(pl.Int64, strict=False)).list.sum()
        return Read(pl.max_horizontal(read.value, pl.when(whole > 0).then(whole)), read.fault)

    return replace(
        counts,
        prompt=summed(counts.prompt, "input_tokens"),
        completion=summed(counts.completion, "output_tokens"),
        cache_read=summed(counts.cache_read, "cache_read_input_tokens"),
        cache_write=summed(counts.cache_write, "cache_creation_input_tokens"),
        cache_write_5m=summed(counts.cache_write_5m, "cache_creation", "ephemeral_5m_input_tokens"),
        cache_write_1h=summed(counts.cache_write_1h, "cache_creation", "ephemeral_1h_input_tokens"),
    )


def by_lifetime(total: pl.Expr, five_minutes: pl.Expr, hour: pl.Expr) -> dict[str, pl.Expr]:
    """The columns of cache writes (tokens) from their total and the two halves of the split, each or none stated.

    The split holds only where it adds up to the total or there is no total; else all are writes of 5 minutes, the
    API's default, so that no token is lost or made up (case B025).
    """
    split = pl.coalesce(five_minutes + hour, five_minutes, hour)
    holds = (split == pl.coalesce(total, split)).fill_null(value=False)
    return {
        "cache_write_5m_tokens": pl.when(holds)
        .then(pl.coalesce(five_minutes, total - hour))
        .otherwise(total),
        "cache_write_1h_tokens": pl.when(holds).then(hour),
    }


def columns(counts: Counts, measured: pl.Expr) -> dict[str, pl.Expr]:
    """The detail columns of REQUESTS (all but input and output), null where `measured` is not true."""

    def shown(value: pl.Expr) -> pl.Expr:
        return pl.when(measured).then(value)

    written = by_lifetime(counts.cache_write.value, counts.cache_write_5m.value, counts.cache_write_1h.value)
    return {
        "_total_tokens": shown(counts.total.value),
        "cache_read_tokens": shown(counts.cache_read.value),
        **{name: shown(value) for name, value in written.items()},
        "reasoning_tokens": shown(counts.reasoning.value),
        "audio_input_tokens": shown(counts.audio_input.value),
        "audio_output_tokens": shown(counts.audio_output.value),
        "image_input_tokens": shown(counts.image_input.value),
        "image_output_tokens": shown(counts.image_output.value),
    }
