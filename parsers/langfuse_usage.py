"""The map of counts (`usageDetails`) of a Langfuse observation.

Belongs here: what each key means, whoever sent it, and whether its parts are inside of `input` and `output`.
Does not belong here: the other fields of an observation (`formats/langfuse_observations.py`).

By convention the keys are disjoint, so that all inputs together are the input. Senders break it: they give
`input` as a whole and cached tokens beside it. The total of such a row shows it, unless Langfuse made the
total itself by adding up all keys; then `cached_parts.py` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers import cached_parts, values

if TYPE_CHECKING:
    from parsers.fields import Fields

MAP = "MAP(VARCHAR, VARCHAR)"
_ENTRIES = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
_KINDS = {
    "unit": r"^unit$",
    "ignored": r"cost|miss",
    "total": r"^total",
    "write_1h": r"(?:creat|writ|ephemeral).*1h",
    "write_5m": r"(?:creat|writ|ephemeral).*5m",
    "write": r"cache.*(?:creat|writ)",
    "read": r"cache",
    "reasoning": r"reason|thought|thinking",
    "audio_output": r"(?:output|completion).*audio|audio.*(?:output|completion)",
    "audio_input": r"audio",
    "image_output": r"(?:output|completion).*image|image.*(?:output|completion)",
    "image_input": r"image",
    "input": r"^(?:input|prompt)(?:_?tokens?)?(?:_count)?$",
    "output": r"^(?:output|completion|candidates)(?:_?tokens?)?(?:_count)?$",
    "other_input": r"input|prompt",
    "other_output": r"output|completion|candidates",
}
"""What a key (in small letters) counts; the first that matches. Keys of one kind are names for one number,
but for the two last ones."""
_COUNTED = tuple(_KINDS)[2:]
_ADDED = ("other_input", "other_output")


@dataclass(frozen=True)
class Usage:
    """Counts of an observation, all parts inside of `input` and `output`."""

    input: pl.Expr
    output: pl.Expr
    read: pl.Expr
    write_5m: pl.Expr
    write_1h: pl.Expr
    reasoning: pl.Expr
    details: dict[str, pl.Expr]
    fault: pl.Expr
    flags: dict[str, pl.Expr]


def read(fields: Fields, *maps: str) -> Usage:
    """Read the first of these maps that is not empty. Counts in another unit than tokens are unknown."""
    entries = _entries(fields, maps)
    counted = entries.join(_kinds(entries["key"].unique()), on="key").filter(
        ~pl.col("value").str.starts_with("{")
    )
    count = values.whole(pl.when(pl.col("kind") != "unit").then("value"), "a count of usageDetails")
    counted = counted.with_columns(count=count.value).with_columns(bad=count.fault(pl.col("count")))

    def each(name: str) -> pl.Expr:
        mine = pl.col("count").filter(pl.col("kind") == name)
        summed = pl.when(mine.count() > 0).then(mine.sum())
        return (summed if name in _ADDED else mine.max()).alias(f"usage.{name}")

    wide = counted.group_by("source_line").agg(
        *map(each, _COUNTED),
        pl.col("bad").drop_nulls().first().alias("usage.bad"),
        pl.col("value").filter(pl.col("kind") == "unit").first().alias("usage.unit"),
    )
    fields.frame = fields.frame.join(wide, on="source_line", how="left", maintain_order="left")
    return _whole()


def _entries(fields: Fields, maps: tuple[str, ...]) -> pl.DataFrame:
    found = [pl.col(name).cast(_ENTRIES) for name in maps if fields.has(name)]
    filled = [pl.when(entries.list.len() > 0).then(entries) for entries in found]
    entry = pl.coalesce(filled) if filled else pl.lit(None, dtype=_ENTRIES)
    return fields.frame.select("source_line", entry=entry).drop_nulls().explode("entry").unnest("entry")


def _kinds(keys: pl.Series) -> pl.DataFrame:
    """What each key counts, without those that count nothing."""
    key = pl.col("key").str.to_lowercase()
    kind = pl.coalesce(
        pl.when(key.str.contains(pattern)).then(pl.lit(name)) for name, pattern in _KINDS.items()
    )
    return pl.DataFrame({"key": keys}).select("key", kind=kind).filter(pl.col("kind") != "ignored")


def _whole() -> Usage:
    in_tokens = pl.col("usage.unit").is_null() | (pl.col("usage.unit") == "TOKENS")
    n = {name: pl.when(in_tokens).then(pl.col(f"usage.{name}")) for name in _COUNTED}
    # A sender may state the writes as a whole and by lifetime: both are the same tokens.
    split = pl.sum_horizontal(n["write_5m"], n["write_1h"])
    is_stated = pl.any_horizontal(n[name].is_not_null() for name in ("write", "write_5m", "write_1h"))
    written = pl.when(is_stated).then(pl.max_horizontal(n["write"], split))
    cached = n["read"].fill_null(0) + written.fill_null(0)
    heard = pl.sum_horizontal(n["audio_input"], n["image_input"], n["other_input"])
    made = pl.sum_horizontal(n["reasoning"], n["audio_output"], n["image_output"], n["other_output"])
    fresh, plain, total = n["input"].fill_null(0), n["output"].fill_null(0), n["total"]
    all_in, all_out = fresh + cached + heard, plain + made
    in_whole = (cached + heard > 0) & ((total == fresh + plain) | (total == fresh + all_out))
    out_whole = (made > 0) & ((total == fresh + plain) | (total == all_in + plain))
    has_input = pl.any_horizontal(
        n[name].is_not_null() for name in ("input", "read", "audio_input", "image_input", "other_input")
    )
    has_output = pl.any_horizontal(
        n[name].is_not_null()
        for name in ("output", "reasoning", "audio_output", "image_output", "other_output")
    )
    is_shown, out_whole = in_whole.fill_null(value=False), out_whole.fill_null(value=False)
    in_whole = is_shown | cached_parts.is_inside(fresh, cached)
    return Usage(
        input=pl.when(has_input).then(pl.when(in_whole).then(fresh).otherwise(all_in)),
        output=pl.when(has_output).then(pl.when(out_whole).then(plain).otherwise(all_out)),
        read=n["read"],
        write_5m=written - n["write_1h"].fill_null(0),
        write_1h=n["write_1h"],
        reasoning=n["reasoning"],
        details={
            f"{kind}_tokens": n[kind]
            for kind in ("audio_input", "audio_output", "image_input", "image_output")
        },
        fault=pl.col("usage.bad"),
        flags={
            **cached_parts.flags(fresh, cached, shown=is_shown),
            "unknown_usage_key": n["other_input"].is_not_null() | n["other_output"].is_not_null(),
        },
    )
