"""Azure LLM inference traces: one CSV row per request, arrival time and two token counts.

Covers the three releases of Azure/AzurePublicDataset (2023 one hour, 2024 one week, 2025 multimodal). What
the counts include is in `FORMAT.semantics`; reading CSV is not done here (`parsers/readers.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.values import instant, read_fields, whole

if TYPE_CHECKING:
    from parsers.format import Context, Head

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
# The service (code, conv, multimodal) is told only by the name of the file.
_SERVICE = re.compile(r"(?:^|[_.-])(code|conv|multimodal)(?=[_.-]|$)", re.IGNORECASE)


def _recognise(head: Head) -> bool:
    return set(COLUMNS) <= set(head.csv_header)


def service_of(source: str) -> str | None:
    """Name the service of a trace from its file name (`AzureLLMInferenceTrace_conv_1week.csv` -> `conv`)."""
    found = _SERVICE.search(re.split(r"[/\\!]", source)[-1])
    return found.group(1).lower() if found else None


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    at, context_tokens, generated = COLUMNS
    cell = Fields(frame).raw
    read = read_fields(
        frame,
        {
            # Texts that name no zone are UTC.
            "started_at": instant(cell(at), at, unit="iso").needed(at),
            "input_tokens": whole(cell(context_tokens), context_tokens).needed(context_tokens),
            "output_tokens": whole(cell(generated), generated).needed(generated),
        },
    )
    return read.drop("_flags").with_columns(
        # A second header: files put on end of one another.
        frame.select("source_line", _other=cell(at).eq_missing(at)),
        project=pl.lit(service_of(context.source), dtype=pl.String),
        status=pl.lit("ok"),
        usage_origin=pl.lit("reported"),
        flags=pl.lit(["status_assumed"], dtype=pl.List(pl.String)),
    )


FORMAT = Format(
    name="azure_llm_trace",
    title="Azure LLM inference traces (2023, 2024, 2025)",
    written_by="Azure/AzurePublicDataset, CC-BY-4.0: AzureLLMInferenceTrace_{code,conv}.csv, "
    "AzureLLMInferenceTrace_{code,conv}_1week.csv, AzureLMMInferenceTrace_multimodal.csv.gz",
    target=REQUESTS,
    container="csv",
    recognised_by="a CSV header with TIMESTAMP, ContextTokens and GeneratedTokens",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="utc"),
    traps=(
        "No model, session, cache, latency or status: cached tokens are unknown (null), status is assumed.",
        "The 2023 release writes 7 decimals and no zone (UTC).",
        "The 2024 release writes +00:00, and no decimals where they are zero.",
        "The README of the 2023 release names the 11th of November; its rows are of the 16th.",
        "The service (code, conv, multimodal) is only in the file name; a renamed file has no project.",
        "NumImages of the 2025 release has no column here; if ContextTokens holds image tokens is unknown.",
        "A 2023 file covers less than one hour: dividing by 3,600 s understates its rate.",
    ),
)
