"""The list of formats. Adding one: a file in `formats/`, its name here, a case folder under
tests/parsers/cases/.

Belongs here: names and their lazy import. Does not belong here: choosing a format for a file (`detect.py`).
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from parsers.errors import UnknownFormatError

if TYPE_CHECKING:
    from parsers.format import Format

FORMAT_NAMES = (
    # gateways and routers
    "litellm_payload",
    "litellm_spend_logs",
    "litellm_spend_logs_csv",
    "new_api_logs",
    "new_api_logs_csv",
    "new_api_log_pages",
    # observability exports and traces
    "otlp_spans",
    # bodies of APIs
    "openai_usage",
    # exports of clouds and vendors
    # coding agents
    # public traces and benchmark outputs
    "azure_llm_trace",
    "mooncake_trace",
    "weka_sessions",
    # engines
    "vllm_log",
    "sglang_log",
    "sglang_requests",
    "llamacpp_log",
    "llamacpp_log_jsonl",
    "llamacpp_response",
    # metrics
    "prometheus_query_range",
    "prometheus_query_range_devices",
    # meters of devices and hosts
    "nvidia_smi_csv",
)
"""One module of `parsers.formats` each; a module may declare several formats, the names say which."""

_MODULES = {
    "new_api_logs_csv": "new_api_logs",
    "new_api_log_pages": "new_api_logs",
    "llamacpp_log_jsonl": "llamacpp_log",
    "litellm_spend_logs_csv": "litellm_spend_logs",
}


@cache
def load(name: str) -> Format:
    """Import one format.

    Raises:
        UnknownFormatError: no format has this name.

    """
    if name not in FORMAT_NAMES:
        near = difflib.get_close_matches(name, FORMAT_NAMES, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`tokenworks formats` lists them."
        raise UnknownFormatError(f"no format is called {name}", remedy=hint)
    module = import_module(f"parsers.formats.{_MODULES.get(name, name)}")
    declared: Format = next(fmt for fmt in vars(module).values() if getattr(fmt, "name", None) == name)
    return declared


def all_formats() -> list[Format]:
    """Every format, in the order of FORMAT_NAMES."""
    return [load(name) for name in FORMAT_NAMES]
