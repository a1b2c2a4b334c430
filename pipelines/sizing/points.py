"""Rows that describe a serving point (model, hardware, parallelism, load), in the spellings of benchmark tables.

Belongs here: reading the columns of the two tables of measured points (InferenceX by way of aiconfigurator's
`latency_points.csv`, ML.ENERGY's `energy_points.csv`), resolving names through the catalogue, and the one
canonical frame that fit and prediction work on. Does not belong here: the measured columns (they are joined by
whoever fits), predicting (`predict.py`).

Nothing here raises on a row: what can't be resolved is said in `note`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

import polars as pl

from pipelines.sizing.roofline import Replica
from warehouse.catalogue import (
    BITS,
    PRECISIONS,
    Model,
    Precision,
    accelerators,
    find_model,
    match_accelerator,
    models,
    parameters,
)

ENGINES = {
    "vllm": "vllm",
    "sglang": "sglang",
    "trtllm": "trtllm",
    "trt": "trtllm",
    "tensorrt-llm": "trtllm",
    "tensorrt_llm": "trtllm",
}
GROUP = (
    "model",
    "accelerator",
    "precision",
    "tensor_parallel",
    "pipeline_parallel",
    "attention_dp",
    "engine",
    "series",
)
"""Columns that make a replica."""

_SYNONYMS = {
    "model": ("model_path", "model"),
    "accelerator": ("system", "gpu", "accelerator"),
    "engine": ("backend", "engine"),
    "precision": ("precision", "gemm_quant_mode", "moe_quant_mode"),
    "mode": ("mode",),
    "task": ("task",),
    "id": ("id",),
}
_NUMBERS = {
    "tensor_parallel": ("tp_size", "num_gpus", "n_accel", "tp"),
    "pipeline_parallel": ("pp_size", "pp"),
    "attention_dp": ("attention_dp_size",),
    "moe_tp": ("moe_tp_size",),
    "moe_ep": ("moe_ep_size",),
    "batch": ("batch_size", "max_num_seqs", "batch"),
    "concurrency": ("concurrency",),
    "input_tokens": ("isl", "isl_mean"),
    "output_tokens": ("osl", "avg_out_len", "osl_mean"),
    **{
        f"{phase}_{name}": (f"{phase}_{column}",)
        for phase in ("prefill", "decode")
        for name, column in {
            "batch": "batch_size",
            "workers": "num_workers",
            "tensor_parallel": "tp_size",
            "pipeline_parallel": "pp_size",
            "attention_dp": "attention_dp_size",
            "moe_tp": "moe_tp_size",
            "moe_ep": "moe_ep_size",
        }.items()
    },
}
_CONCURRENCY_IN_ID = r"_c(\d{1,6})(?:_|$)"
_MAX_TOKENS, _MAX_COUNT = 10_000_000, 1_000_000


def read_points(rows: pl.DataFrame, extra: Mapping[str, Model] | None = None) -> pl.DataFrame:
    """Resolve rows of either table, or a mixture of both.

    Args:
        rows: cells as text or numbers; columns that are not known are ignored, missing ones are unknown.
        extra: architectures beside the catalogue's, by the name that the rows use.

    Returns:
        One row per row, in order: the columns of `GROUP`, `is_disaggregated`, `sequences` and `prefill_*` of
        the replica that decodes, `input_tokens`, `output_tokens`, `task`, and `note`, which is empty where the
        row can be predicted and says why not where it can't.

    """
    raw = rows.select(
        *(_text(rows.columns, *names).alias(name) for name, names in _SYNONYMS.items()),
        *(_number(rows.columns, *names).alias(name) for name, names in _NUMBERS.items()),
    )
    own = dict(extra or {})
    shaped = _parallelism(_load(_disaggregated(raw)))
    named = shaped.with_columns(
        pl.col("model").alias("model_name"),
        pl.col("accelerator").alias("accelerator_name"),
        _each(
            shaped["model"], lambda name: name if name in own else getattr(find_model(name), "name", None)
        ).alias("model"),
        _each(shaped["accelerator"], lambda name: getattr(match_accelerator(name), "name", None)).alias(
            "accelerator"
        ),
        _each(shaped["engine"], lambda name: ENGINES.get(name.strip().casefold())).alias("engine"),
        pl.when(pl.col("task").is_not_null())
        .then(pl.lit("mlenergy"))
        .when("is_disaggregated")
        .then(pl.lit("disaggregated"))
        .alias("series"),
    )
    return _noted(_precision(named, {**models(), **own})).select(
        *GROUP,
        "is_disaggregated",
        "sequences",
        "input_tokens",
        "output_tokens",
        "task",
        *(f"prefill_{name}" for name in ("tensor_parallel", "attention_dp", "workers")),
        "note",
    )


def _text(known: list[str], *names: str) -> pl.Expr:
    present = [
        pl.col(name).cast(pl.String).str.strip_chars().replace("", None) for name in names if name in known
    ]
    return pl.coalesce(present) if present else pl.lit(None, pl.String)


def _number(known: list[str], *names: str) -> pl.Expr:
    value = _text(known, *names).cast(pl.Float64, strict=False)
    return pl.when(value.is_finite() & (value >= 0)).then(value)


def _each(texts: pl.Series, resolve: Callable[[str], str | None]) -> pl.Series:
    """Resolve each different text once."""
    found = {text: resolve(text) for text in texts.unique() if text is not None}
    return texts.replace_strict(list(found), list(found.values()), default=None, return_dtype=pl.String)


def _disaggregated(raw: pl.DataFrame) -> pl.DataFrame:
    """Let the decode workers stand for the replica where prefill runs apart."""
    apart = (pl.col("mode").str.to_lowercase() == "disagg").fill_null(value=False)
    parts = ("tensor_parallel", "pipeline_parallel", "attention_dp", "moe_tp", "moe_ep", "batch")
    workers = pl.col("decode_workers").fill_null(1).clip(lower_bound=1)
    in_id = pl.col("id").str.extract(_CONCURRENCY_IN_ID).cast(pl.Float64, strict=False)
    return raw.with_columns(
        apart.alias("is_disaggregated"),
        *(
            pl.when(apart).then(pl.col(f"decode_{name}")).otherwise(pl.col(name)).alias(name)
            for name in parts
        ),
        pl.coalesce(
            "concurrency", pl.when(apart & pl.col("decode_batch").is_null()).then(in_id / workers)
        ).alias("concurrency"),
        pl.col("prefill_workers").fill_null(1).clip(lower_bound=1),
    )


def _load(raw: pl.DataFrame) -> pl.DataFrame:
    """Sequences at once over the whole replica, and the lengths that a task stands for."""
    told = parameters("step_time")["task_input_tokens"]
    task = pl.col("task").str.to_lowercase()
    return raw.with_columns(
        pl.coalesce(
            pl.col("batch").replace(0, None) * pl.col("attention_dp").fill_null(1).clip(lower_bound=1),
            "concurrency",
        ).alias("sequences"),
        pl.coalesce(
            "input_tokens",
            task.replace_strict(list(told), list(told.values()), default=None, return_dtype=pl.Float64),
        ).alias("input_tokens"),
        pl.coalesce(
            pl.col("output_tokens").replace(0, None),
            pl.when(task.is_not_null()).then(parameters("step_time")["task_output_tokens"]),
        ).alias("output_tokens"),
    )


def _parallelism(raw: pl.DataFrame) -> pl.DataFrame:
    """Undo the table's two ways to write groups that do not exist.

    Where all n accelerators share attention and experts both ways, the table writes moe_tp = moe_ep = n and
    tp x attention_dp = n x n (or tp = attention_dp = n, moe_ep = n x n): its timings are those of n
    accelerators. Beyond the accelerators of one server, attention runs data-parallel, one group per rank.
    """
    tp, adp = (pl.col(name).fill_null(1).clip(lower_bound=1) for name in ("tensor_parallel", "attention_dp"))
    moe_tp, moe_ep = (pl.col(name).fill_null(1) for name in ("moe_tp", "moe_ep"))
    squared = (
        pl.col("attention_dp").is_not_null()
        & (moe_tp > 1)
        & (moe_tp == moe_ep)
        & (tp * adp == moe_tp * moe_ep)
    )
    squared_dp = (adp > 1) & (tp == adp) & (moe_tp <= 1) & (moe_ep == tp * tp)
    count = pl.when(squared).then(moe_tp).when(squared_dp).then(tp).otherwise(tp * adp)
    wide = count > parameters("step_time")["widest_attention_group"]
    groups = (
        pl.when(wide | squared_dp | (squared & (adp > 1))).then(count).when(squared).then(1).otherwise(adp)
    )
    return raw.with_columns(
        (count / groups).alias("tensor_parallel"),
        groups.alias("attention_dp"),
        pl.col("pipeline_parallel").fill_null(1).clip(lower_bound=1),
        *(
            pl.col(f"prefill_{name}").fill_null(1).clip(lower_bound=1)
            for name in ("tensor_parallel", "attention_dp")
        ),
    )


_PRECISION_MARKS: tuple[tuple[str, Precision], ...] = (
    (r"nvfp4|mxfp4|fp4|w4a4", "fp4"),
    (r"int4|awq|gptq|w4a16|4.?bit|q4", "int4"),
    (r"int8|w8a8|8.?bit|q8", "int8"),
    (r"fp8|float8|e4m3", "fp8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|half", "fp16"),
)


@lru_cache(maxsize=4096)
def precision_of(text: str) -> Precision | None:
    """Precision that a quantisation's name or a model's suffix stands for; None if it names none."""
    lowered = text.casefold()
    return next((precision for mark, precision in _PRECISION_MARKS if re.search(mark, lowered)), None)


def _precision(named: pl.DataFrame, known: Mapping[str, Model]) -> pl.DataFrame:
    """The row's precision, else the model name's, else that of the published weights.

    4-bit floats need units for them; elsewhere engines multiply at 16 bits, as with int4.
    """
    native = {name: str(model.native_precision) for name, model in known.items()}
    chosen = named.with_columns(
        pl.col("precision").alias("precision_name"),
        pl.coalesce(
            _each(named["precision"], precision_of),
            pl.when(pl.col("precision").is_null()).then(_each(named["model_name"], precision_of)),
            pl.when(pl.col("precision").is_null()).then(
                pl.col("model").replace_strict(
                    list(native), list(native.values()), default=None, return_dtype=pl.String
                )
            ),
        ).alias("precision"),
    )
    without = [name for name, card in accelerators().items() if card.peak_flops("fp4") is None]
    emulated = (pl.col("precision") == "fp4") & pl.col("accelerator").is_in(without)
    return chosen.with_columns(
        pl.when(emulated).then(pl.lit("int4")).otherwise(pl.col("precision")).alias("precision")
    )


def _noted(named: pl.DataFrame) -> pl.DataFrame:
    peaks = [
        f"{card.name}\n{precision}"
        for card in accelerators().values()
        for precision in PRECISIONS
        if card.peak_flops(precision) is None
    ]
    lacking = pl.concat_str("accelerator", pl.lit("\n"), "precision").is_in(peaks)
    whole = ("tensor_parallel", "attention_dp", "pipeline_parallel")
    checks: list[tuple[pl.Expr, pl.Expr]] = [
        (pl.col("model_name").is_null(), pl.lit("not predicted: the row names no model")),
        (
            pl.col("model").is_null(),
            _told(
                "not predicted: no architecture is called ",
                "model_name",
                "; give its config.json (--model-config)",
            ),
        ),
        (pl.col("accelerator_name").is_null(), pl.lit("not predicted: the row names no accelerator")),
        (
            pl.col("accelerator").is_null(),
            _told("not predicted: no accelerator is called ", "accelerator_name", ""),
        ),
        (
            pl.col("precision").is_null(),
            _told("not predicted: no precision is called ", "precision_name", ""),
        ),
        (lacking, pl.format("not predicted: {} has no known peak at {}", "accelerator", "precision")),
        *(
            (_out_of_range(name, most), pl.lit(f"not predicted: {words} is missing or out of range"))
            for name, most, words in (
                ("sequences", _MAX_COUNT, "the batch or concurrency"),
                ("input_tokens", _MAX_TOKENS, "the input length (isl)"),
                ("output_tokens", _MAX_TOKENS, "the output length (osl)"),
            )
        ),
        (
            pl.any_horizontal(
                (pl.col(name) != pl.col(name).round()) | (pl.col(name) > _MAX_COUNT) for name in whole
            ),
            pl.lit("not predicted: the parallelism is no whole number of accelerators"),
        ),
    ]
    note = pl.lit("")
    for failed, words in reversed(checks):
        note = pl.when(failed.fill_null(value=True)).then(words).otherwise(note)
    return named.with_columns(note.alias("note"))


def _out_of_range(name: str, most: int) -> pl.Expr:
    return pl.col(name).is_null() | (pl.col(name) <= 0) | (pl.col(name) > most)


def _told(before: str, column: str, after: str) -> pl.Expr:
    """Quote a cell: one printable line, cut."""
    shown = pl.col(column).str.replace_all(r"[^\x20-\x7e]", "?").str.slice(0, 60)
    return pl.format("{}'{}'{}", pl.lit(before), shown, pl.lit(after))


def replicas(points: pl.DataFrame, known: Mapping[str, Model]) -> Iterator[tuple[Replica, pl.DataFrame]]:
    """Each different replica and task among predictable points, with its rows."""
    for key, rows in points.filter(pl.col("note") == "").group_by(*GROUP, "task", maintain_order=True):
        values = dict(zip((*GROUP, "task"), key, strict=True))
        yield (
            Replica(
                model=known[str(values["model"])],
                accelerator=accelerators()[str(values["accelerator"])],
                tensor_parallel=int(float(str(values["tensor_parallel"]))),
                precision=_as_precision(str(values["precision"])),
                pipeline_parallel=int(float(str(values["pipeline_parallel"]))),
                attention_dp=int(float(str(values["attention_dp"]))),
                engine=None if values["engine"] is None else str(values["engine"]),
                series=None if values["series"] is None else str(values["series"]),
            ),
            rows,
        )


def _as_precision(name: str) -> Precision:
    return next(precision for precision in BITS if precision == name)
