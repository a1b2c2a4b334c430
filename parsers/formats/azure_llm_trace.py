"""Azure LLM inference traces: one CSV row per request, arrival time and two token counts.

Covers the three releases of Azure/AzurePublicDataset (2023 one hour, 2024 one week, 2025 multimodal). What
the counts include is in `FORMAT.semantics`; reading CSV is not done here (`parsers/readers.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.values import Reading, first_fault, instant, present, whole

if TYPE_CHECKING:
    from parsers.format import Context, Head

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
# The service (code, conv, multimodal) is told only by the name of the file.
_SERVICE = re.compile(r"(?:^|[_.-])(code|conv|multimodal)(?=[_.-]|$)", re.IGNORECASE)
# As the 2023 and the 2024 release write it; tried first because a pattern is several times faster than
# `instant`.
_NAIVE, _ZONED = "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z"


def _recognise(head: Head) -> bool:
    return set(COLUMNS) <= set(head.csv_header)


def service_of(source: str) -> str | None:
    """Name the service of a trace from its file name (`AzureLLMInferenceTrace_conv_1week.csv` -> `conv`)."""
    found = _SERVICE.search(re.split(r"[/\\!]", source)[-1])
    return found.group(1).lower() if found else None


def _started_at(name: str) -> Reading:
    """Texts that name no zone are UTC."""
    text = present(pl.col(name))
    fast = pl.coalesce(
        text.str.to_datetime(_NAIVE, time_unit="us", strict=False).dt.replace_time_zone("UTC"),
        text.str.to_datetime(_ZONED, time_unit="us", strict=False),
    )
    other = instant(pl.when(fast.is_null()).then(text), name, unit="iso")
    return Reading(pl.coalesce(fast, other.value), other.fault).needed(name)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    started, context_tokens, generated = (
        _started_at(COLUMNS[0]),
        *(whole(pl.col(name), name).needed(name) for name in COLUMNS[1:]),
    )
    return frame.select(
        "source_line",
        started_at=started.value,
        project=pl.lit(service_of(context.source), dtype=pl.String),
        input_tokens=context_tokens.value,
        output_tokens=generated.value,
        status=pl.lit("ok"),
        usage_origin=pl.lit("reported"),
        flags=pl.lit(["status_assumed"], dtype=pl.List(pl.String)),
        _reject=first_fault([started, context_tokens, generated]),
        # A second header: files put on end of one another.
        _other=present(pl.col("TIMESTAMP")).eq_missing(pl.lit("TIMESTAMP")),
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
