"""SGLang's request metrics: `--export-metrics-to-file`, one JSON object per finished request.

Belongs here: the record of `sglang-request-metrics-YYYYMMDD_HH.log`: the request's parameters as JSON text,
and the `meta_info` of its answer. Does not belong here: batch lines (`sglang_log.py`), response bodies
(`openai_usage.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers.fields import Fields
from parsers.format import Format
from parsers.records import REQUESTS
from parsers.sglang import META, PARAMETERS, SEMANTICS, TRAPS, request_rows

if TYPE_CHECKING:
    from parsers.format import Head


def _recognise(head: Head) -> bool:
    objects = head.objects
    return bool(objects) and all(
        {"request_parameters", "prompt_tokens"} <= item.keys()
        and {"e2e_latency", "weight_version"} & item.keys()
        for item in objects
    )


FORMAT = Format(
    name="sglang_requests",
    title="SGLang request metrics",
    written_by="SGLang server with --export-metrics-to-file (since 2025-11)",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with request_parameters, prompt_tokens and e2e_latency or weight_version",
    recognise=_recognise,
    map=lambda frame, context: request_rows(Fields(frame), context),
    structure={"request_parameters": "VARCHAR", **META},
    embedded={"request_parameters": PARAMETERS},
    semantics=SEMANTICS,
    traps=(
        "The base model is not a field: it is in the server's log. An adapter (lora_path) is named.",
        *TRAPS,
        "SGLANG_LOG_REQUEST_EXCEEDED_MS leaves fast requests out: such a file is a biased sample.",
    ),
)
