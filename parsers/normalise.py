"""One meaning for all token counts: what `input_tokens` includes is decided here and nowhere else.

Belongs here: turning counts as a source states them into the contract's counts, from the format's declared
semantics; the checks that every row passes, with the rule that repairs or flags it. Does not belong here:
reading fields.

Rules (a repaired or doubted row says so in `flags`):
- `count_out_of_range`: a negative count, or one over 2^40, is unknown.
- a format whose 0 means unknown: a row with 0 input and 0 output has no usage.
- cache outside input, declared or shown by the row (`cache_outside_input`): input = input + reads + writes.
  A row of a format that declares "inside" shows it if its total says so (with its reasoning or without), or if
  its reads alone or its writes alone exceed its input.
- `cache_clamped`: reads and writes that only together exceed the input are prefix counts that overlap (OpenAI
gives
  them unadjusted): writes are cut.
- reasoning outside output, declared or shown by the total (`reasoning_outside_output`): output = output +
reasoning.
- `hidden_reasoning`: a total above input + output, with no reasoning stated: output = total - input.
- `reasoning_exceeds_output`, `part_exceeds_whole` (audio, images): the part is unknown.
- `duration_out_of_range`: a negative span, or one of more than 366 days, is unknown.
- `ended_before_start`, `first_token_out_of_order`: the later instant is unknown.
- `cost_below_zero`: the cost is unknown.
The tokens at the end of each block of a prompt follow the input when it changes.
Sums (USAGE_BUCKETS) follow the same rules of counts: what holds for each call holds for their sum. Their cost
may be below zero: credits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.durations import MAX_SPAN_MS, span
from parsers.records import COUNT, REQUESTS, USAGE_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parsers.format import TokenSemantics

MAX_COUNT = 1 << 40
COUNTS = tuple(c.name for c in REQUESTS.columns if c.unit == "tokens" and c.name != "prefix_token_counts")
_BUCKET_COUNTS = tuple(c.name for c in USAGE_BUCKETS.columns if c.dtype is COUNT and c.name != "source_line")
TOTAL = "_total_tokens"
OUTSIDE = "_cache_outside"
_STATED_INPUT = "_stated_input"

_READ = pl.col("cache_read_tokens").fill_null(0)
_WRITE = pl.col("cache_write_5m_tokens").fill_null(0) + pl.col("cache_write_1h_tokens").fill_null(0)
_INPUT, _OUTPUT, _REASONING = pl.col("input_tokens"), pl.col("output_tokens"), pl.col("reasoning_tokens")
_PROVIDER = pl.col("provider").str.to_lowercase()
"""One vendor is one provider, however a source writes its name."""
_SPANS = ("queue_ms", "ttft_ms", "duration_ms")
_PARTS = {
    f"{kind}_{side}_tokens": f"{side}_tokens" for kind in ("audio", "image") for side in ("input", "output")
}


def normalise(frame: pl.DataFrame, semantics: TokenSemantics) -> pl.DataFrame:
    """Give rows of REQUESTS their contract meaning.

    Args:
        frame: all columns of REQUESTS, counts as the source states them; optional `_total_tokens` (Int64, the
            source's own total) and `_cache_outside` (Boolean, overrides the declaration for a row).
        semantics: what the format's counts include.

    Returns:
        the columns of REQUESTS.

    """
    frame = frame.with_columns(pl.col("input_tokens").alias(_STATED_INPUT))
    frame = _counts(frame, semantics, COUNTS)
    frame = _parts_inside(frame)
    frame = _counts_along_prompt(frame)
    frame = _times(frame)
    frame = _flagged(frame, "cost_below_zero", pl.col("cost_reported") < 0)
    return frame.with_columns(
        _PROVIDER,
        cost_reported=pl.when(pl.col("cost_reported") >= 0).then(pl.col("cost_reported")),
        flags=pl.col("flags").fill_null([]),
    ).select(REQUESTS.names)


def normalise_buckets(frame: pl.DataFrame, semantics: TokenSemantics) -> pl.DataFrame:
    """Give rows of USAGE_BUCKETS their contract meaning; see `normalise`."""
    frame = _counts(frame, semantics, _BUCKET_COUNTS)
    disordered = pl.col("ended_at") <= pl.col("started_at")
    frame = _flagged(frame, "ended_before_start", disordered)
    return frame.with_columns(
        _PROVIDER, ended_at=pl.when(~disordered).then("ended_at"), flags=pl.col("flags").fill_null([])
    ).select(USAGE_BUCKETS.names)


def _counts(frame: pl.DataFrame, semantics: TokenSemantics, counts: Sequence[str]) -> pl.DataFrame:
    """Counts within range, cache inside of input, reasoning inside of output."""
    extra = [
        pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in ((TOTAL, pl.Int64), (OUTSIDE, pl.Boolean))
        if name not in frame.columns
    ]
    frame = _within_range(frame.with_columns(extra), *counts, TOTAL)
    if semantics.zero_means == "unknown":
        frame = _without_empty_usage(frame)
    frame = _cache_inside(frame, semantics)
    frame = _reasoning_inside(frame, semantics)
    return _within_range(frame, "input_tokens", "output_tokens")


def _flagged(frame: pl.DataFrame, flag: str, where: pl.Expr) -> pl.DataFrame:
    where = where.fill_null(value=False)
    if not frame.select(where.any()).item():
        return frame
    flags = pl.col("flags").fill_null([])
    return frame.with_columns(
        pl.when(where).then(flags.list.concat(pl.lit([flag]))).otherwise(pl.col("flags")).alias("flags")
    )


def _within_range(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    within = {name: pl.col(name).is_between(0, MAX_COUNT) for name in names}
    frame = _flagged(frame, "count_out_of_range", pl.any_horizontal(~rule for rule in within.values()))
    return frame.with_columns(pl.when(rule).then(pl.col(name)).alias(name) for name, rule in within.items())


def _without_empty_usage(frame: pl.DataFrame) -> pl.DataFrame:
    nothing = (_INPUT.fill_null(0) == 0) & (_OUTPUT.fill_null(0) == 0) & (_READ + _WRITE == 0)
    return frame.with_columns(
        *(pl.when(~nothing).then(pl.col(name)).alias(name) for name in (*COUNTS, TOTAL)),
        usage_origin=pl.when(nothing).then(pl.lit("missing")).otherwise("usage_origin"),
    )


def _cache_inside(frame: pl.DataFrame, semantics: TokenSemantics) -> pl.DataFrame:
    if semantics.cache_read == "absent" and semantics.cache_write == "absent":
        return frame
    total = pl.col(TOTAL)
    declared_read = pl.lit(semantics.cache_read == "outside")
    declared_write = pl.lit(semantics.cache_write == "outside")
    apart = _INPUT + _OUTPUT.fill_null(0) + _READ + _WRITE
    by_total = (_READ + _WRITE > 0) & ((total == apart) | (total == apart + _REASONING))
    shown = ~declared_read & (by_total | (_READ > _INPUT) | (_WRITE > _INPUT))
    override = pl.col(OUTSIDE)
    frame = frame.with_columns(
        _adds_read=override.fill_null(declared_read | shown),
        _adds_write=override.fill_null(declared_write | shown),
        _shown=override.is_null() & shown.fill_null(value=False),
    )
    frame = _flagged(frame, "cache_outside_input", pl.col("_shown"))
    frame = frame.with_columns(
        input_tokens=_INPUT
        + pl.when(pl.col("_adds_read")).then(_READ).otherwise(0)
        + pl.when(pl.col("_adds_write")).then(_WRITE).otherwise(0)
    )
    frame = _flagged(frame, "cache_clamped", _READ + _WRITE > _INPUT)
    room = (_INPUT - _READ).clip(lower_bound=0)
    five = pl.col("cache_write_5m_tokens")
    return frame.with_columns(
        cache_read_tokens=_at_most("cache_read_tokens", _INPUT),
        cache_write_5m_tokens=_at_most("cache_write_5m_tokens", room),
        cache_write_1h_tokens=_at_most(
            "cache_write_1h_tokens", (room - five.fill_null(0)).clip(lower_bound=0)
        ),
    )


def _at_most(name: str, limit: pl.Expr) -> pl.Expr:
    """The column cut at a limit; unknown stays unknown, and an unknown limit does not cut."""
    value = pl.col(name)
    return pl.when(value > limit).then(limit).otherwise(value).alias(name)


def _reasoning_inside(frame: pl.DataFrame, semantics: TokenSemantics) -> pl.DataFrame:
    total = pl.col(TOTAL)
    if semantics.reasoning == "outside":
        frame = frame.with_columns(output_tokens=_OUTPUT + _REASONING.fill_null(0))
    elif semantics.reasoning == "inside":
        outside = (_REASONING > 0) & (total == _INPUT + _OUTPUT + _REASONING)
        frame = _flagged(frame, "reasoning_outside_output", outside)
        frame = frame.with_columns(
            output_tokens=pl.when(outside).then(_OUTPUT + _REASONING).otherwise(_OUTPUT)
        )
        hidden = _REASONING.is_null() & (_OUTPUT > 0) & (total > _INPUT + _OUTPUT)
        frame = _flagged(frame, "hidden_reasoning", hidden)
        frame = frame.with_columns(output_tokens=pl.when(hidden).then(total - _INPUT).otherwise(_OUTPUT))
    frame = _flagged(frame, "reasoning_exceeds_output", _REASONING > _OUTPUT)
    return frame.with_columns(
        reasoning_tokens=pl.when((_REASONING > _OUTPUT).fill_null(value=False))
        .then(None)
        .otherwise(_REASONING)
    )


def _parts_inside(frame: pl.DataFrame) -> pl.DataFrame:
    exceeds = {part: (pl.col(part) > pl.col(whole)).fill_null(value=False) for part, whole in _PARTS.items()}
    frame = _flagged(frame, "part_exceeds_whole", pl.any_horizontal(exceeds.values()))
    return frame.with_columns(
        pl.when(~is_too_large).then(pl.col(part)).alias(part) for part, is_too_large in exceeds.items()
    )


def _counts_along_prompt(frame: pl.DataFrame) -> pl.DataFrame:
    """Scale the cumulative counts of a prompt's blocks so that they end at its input tokens."""
    counts, stated = pl.col("prefix_token_counts"), pl.col(_STATED_INPUT)
    changed = counts.is_not_null() & stated.ne_missing(_INPUT)
    if not frame.select(changed.any()).item():
        return frame
    factor = pl.when(stated > 0).then(_INPUT / stated)
    scaled = (
        (counts.cast(pl.List(pl.Float64)) * factor).list.eval(pl.element().round()).cast(pl.List(pl.Int64))
    )
    known = pl.when(_INPUT.is_not_null() & (stated > 0)).then(scaled)
    return frame.with_columns(prefix_token_counts=pl.when(changed).then(known).otherwise(counts))


def _times(frame: pl.DataFrame) -> pl.DataFrame:
    started, first, ended = pl.col("started_at"), pl.col("first_token_at"), pl.col("ended_at")
    within = {name: pl.col(name).is_between(0, MAX_SPAN_MS) for name in _SPANS}
    frame = _flagged(frame, "duration_out_of_range", pl.any_horizontal(~rule for rule in within.values()))
    frame = frame.with_columns(pl.when(rule).then(pl.col(name)).alias(name) for name, rule in within.items())
    frame = _flagged(frame, "ended_before_start", ended < started)
    frame = frame.with_columns(
        ended_at=pl.when(ended >= started).then(ended).otherwise(started + span(pl.col("duration_ms")))
    )
    frame = frame.with_columns(
        duration_ms=pl.col("duration_ms").fill_null(_in_ms(ended - started)),
        first_token_at=first.fill_null(started + span(pl.col("ttft_ms"))),
    )
    disordered = (first < started) | (first > ended)
    frame = _flagged(frame, "first_token_out_of_order", disordered)
    in_order = ~disordered.fill_null(value=False)
    return frame.with_columns(
        first_token_at=pl.when(in_order).then(first),
        ttft_ms=pl.when(in_order).then(pl.col("ttft_ms").fill_null(_in_ms(first - started))),
    )


def _in_ms(span: pl.Expr) -> pl.Expr:
    # Polars divides a long column by multiplying, a single value by dividing; rounding makes them equal.
    return (span.dt.total_microseconds() * 0.001).round(3)
