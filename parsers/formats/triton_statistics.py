"""Answers of Triton's statistics endpoint (`GET /v2/models/stats`): one JSON document per call, an entry per model.

Belongs here: the counters of inferences. Does not belong here: Triton's metrics (`parsers/metrics.py`), which say more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, Head
from parsers.json_heads import mostly
from parsers.metrics import contract_fault
from parsers.records import ENGINE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_TIMES = ("timestamp", "time", "ts")


def _recognise(head: Head) -> bool:
    entries = [
        entry
        for record in head.objects
        if isinstance(stated := record.get("model_stats"), list)
        for entry in stated
        if isinstance(entry, dict)
    ]
    return bool(entries) and mostly(
        entries, lambda entry: {"inference_count", "inference_stats"} <= entry.keys()
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    called = fields.instant(*_TIMES).value
    last = fields.instant("entry.last_inference", unit="ms")
    unused = fields.whole("entry.last_inference").value == 0
    finished = fields.whole("entry.inference_stats.success.count").needed("success")
    fields.frame = fields.frame.with_columns(at=pl.coalesce(called, last.value), unused=unused)
    rows = fields.frame.select(
        "source_line",
        at=pl.col("at"),
        instance=pl.lit(context.options.get("instance"), pl.String),
        model=fields.text("entry.name"),
        requests_total=finished.value.cast(pl.Float64),
        flags=pl.lit([], pl.List(pl.String)),
        _reject=finished.fault,
        _other=(pl.col("unused") & called.is_null()).fill_null(value=False),
    )
    timeless = pl.when(pl.col("at").is_null()).then(pl.lit("last_inference is missing"))
    return rows.with_columns(
        _reject=pl.when(~pl.col("_other")).then(
            pl.coalesce("_reject", timeless, contract_fault(ENGINE_SAMPLES, ["requests_total"]))
        )
    )


FORMAT = Format(
    name="triton_statistics",
    title="Triton model statistics",
    written_by="GET /v2/models/stats of Triton, one answer or many one after another",
    target=ENGINE_SAMPLES,
    container="json_document",
    recognised_by="JSON objects whose list model_stats has inference_count and inference_stats",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(_TIMES, "VARCHAR"),
        "model_stats": [
            {
                **dict.fromkeys(("name", "version", "last_inference"), "VARCHAR"),
                "inference_stats": {"success": {"count": "VARCHAR"}},
            }
        ],
    },
    records="""
SELECT "timestamp", "time", ts, entry FROM (
    SELECT row_number() OVER () AS place, "timestamp", "time", ts, unnest(model_stats) AS entry FROM document
) ORDER BY place
""",
    traps=(
        "An answer states no time: one beside model_stats is taken, else that of the model's last inference.",
        "Counters are since Triton's start; tokens are not among them. A model without inferences is no sample.",
        "The parts of a TensorRT-LLM ensemble count the same requests, each under its own name.",
    ),
)
