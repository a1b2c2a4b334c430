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
    "litellm_payload_batches",
    "litellm_payload_container_log",
    "litellm_spend_log_pages",
    "litellm_legacy",
    "litellm_payload",
    "litellm_spend_logs",
    "litellm_spend_logs_csv",
    "new_api_logs",
    "new_api_logs_csv",
    "new_api_log_pages",
    "portkey_logs",
    "portkey_logs_csv",
    "portkey_sse_log",
    "openrouter_generations",
    "bifrost_logs",
    "bifrost_logs_csv",
    "bifrost_log_pages",
    "tensorzero_inferences",
    "tensorzero_inferences_csv",
    "tensorzero_inference_pages",
    "envoy_ai_gateway",
    "envoy_ai_gateway_container_log",
    "kong_ai_proxy",
    "kong_ai_proxy_container_log",
    "apisix_ai_proxy",
    "apisix_ai_proxy_container_log",
    "apisix_access_log",
    "higress_ai_statistics",
    "higress_ai_statistics_container_log",
    "cloudflare_ai_gateway",
    "cloudflare_ai_gateway_pages",
    "cloudflare_ai_gateway_logpush",
    "nginx_json_access",
    "nginx_json_access_container_log",
    "nginx_access_log",
    "traefik_json_access",
    "traefik_json_access_container_log",
    "litellm_daily_spend",
    "litellm_daily_spend_csv",
    "litellm_daily_activity",
    "litellm_usage_export_csv",
    "openrouter_activity_csv",
    "openrouter_daily_activity",
    "openrouter_daily_activity_csv",
    "openrouter_daily_activity_pages",
    # observability exports and traces
    "otlp_spans",
    "otel_sdk_spans",
    "langfuse_observations",
    "langfuse_observations_csv",
    "langfuse_observation_pages",
    "langfuse_traces",
    "langsmith_runs",
    "langsmith_runs_csv",
    "langsmith_run_pages",
    "langsmith_runs_parquet",
    "helicone_requests",
    "helicone_requests_csv",
    "helicone_request_pages",
    # bodies of APIs
    "openai_usage",
    "openai_usage_container_log",
    "openai_chat_stream",
    "openai_responses_stream",
    "anthropic_messages",
    "anthropic_messages_container_log",
    "anthropic_stream",
    "gemini_generate_content",
    "gemini_generate_content_container_log",
    "gemini_stream",
    "bedrock_converse",
    "dashscope_generation",
    "cohere_chat",
    # exports of clouds and vendors
    "vertex_request_response",
    "vertex_request_response_csv",
    "azure_apim_llm_log",
    "azure_apim_llm_log_csv",
    "azure_openai_diagnostics",
    "azure_openai_diagnostics_csv",
    "azure_openai_diagnostic_batches",
    "bedrock_invocation_log",
    "bedrock_invocation_events",
    "openai_usage_buckets",
    "openai_usage_buckets_csv",
    "openai_costs",
    "openai_costs_csv",
    "anthropic_usage_report",
    "anthropic_cost_report",
    "anthropic_usage_csv",
    "anthropic_cost_csv",
    # coding agents
    "otlp_agent_events",
    "agent_events_log",
    "gemini_cli_chat",
    "gemini_cli_chat_jsonl",
    "claude_code_transcript",
    "codex_rollout",
    # public traces and benchmark outputs
    "azure_llm_trace",
    "mooncake_trace",
    "weka_sessions",
    "burstgpt_trace",
    "qwen_bailian_trace",
    "vllm_bench_result",
    "sglang_bench",
    "aiperf_records",
    "guidellm_report",
    # engines
    "vllm_log",
    "sglang_log",
    "sglang_requests",
    "sglang_request_log",
    "sglang_generate",
    "llamacpp_log",
    "llamacpp_log_jsonl",
    "llamacpp_response",
    "tgi_log",
    "tgi_log_jsonl",
    "tgi_log_jsonl_container_log",
    "ollama_response",
    "ollama_log",
    "lmdeploy_log",
    "tensorrt_llm_log",
    "trtllm_iteration_stats",
    "xinference_log",
    "mindie_log",
    "rtp_llm_access",
    "gpustack_usage_details",
    "gpustack_usage_details_csv",
    "gpustack_model_usages",
    "gpustack_model_usages_csv",
    "gpustack_usage_csv",
    # metrics
    "prometheus_query_range",
    "prometheus_query_range_devices",
    "victoriametrics_export",
    "victoriametrics_export_devices",
    "prometheus_text",
    "prometheus_text_devices",
    "grafana_csv",
    "grafana_csv_devices",
    "grafana_csv_long",
    "grafana_csv_long_devices",
    # meters of devices and hosts
    "nvidia_smi_csv",
    "nvidia_smi_dmon",
    "nvidia_smi_table",
    "npu_smi_info",
    "amd_smi_csv",
    "amd_smi_json",
    "amd_smi_json_document",
    "rocm_smi_json",
    "rocm_smi_table",
    "xpu_smi_csv",
    "tegrastats",
    "powermetrics",
    "ipmi_power",
    "redfish_power",
)
"""One module of `parsers.formats` each; a module may declare several formats, the names say which."""

_MODULES = {
    "vertex_request_response_csv": "vertex_request_response",
    "litellm_spend_log_pages": "litellm_spend_logs",
    "litellm_payload_batches": "litellm_payload",
    "litellm_payload_container_log": "litellm_payload",
    "gemini_generate_content_container_log": "gemini_generate_content",
    "anthropic_messages_container_log": "anthropic_messages",
    "openai_usage_container_log": "openai_usage",
    "grafana_csv_devices": "grafana_csv",
    "grafana_csv_long": "grafana_csv",
    "grafana_csv_long_devices": "grafana_csv",
    "apisix_ai_proxy_container_log": "apisix_ai_proxy",
    "kong_ai_proxy_container_log": "kong_ai_proxy",
    "traefik_json_access_container_log": "traefik_json_access",
    "nginx_json_access_container_log": "nginx_json_access",
    "higress_ai_statistics_container_log": "higress_ai_statistics",
    "envoy_ai_gateway_container_log": "envoy_ai_gateway",
    "azure_apim_llm_log_csv": "azure_apim_llm_log",
    "cloudflare_ai_gateway_pages": "cloudflare_ai_gateway",
    "cloudflare_ai_gateway_logpush": "cloudflare_ai_gateway",
    "azure_openai_diagnostics_csv": "azure_openai_diagnostics",
    "azure_openai_diagnostic_batches": "azure_openai_diagnostics",
    "bedrock_invocation_events": "bedrock_invocation_log",
    "prometheus_text_devices": "prometheus_text",
    "victoriametrics_export_devices": "victoriametrics_export",
    "apisix_access_log": "apisix_ai_proxy",
    "gemini_cli_chat_jsonl": "gemini_cli_chat",
    "litellm_daily_spend_csv": "litellm_daily_spend",
    "openai_usage_buckets_csv": "openai_usage_buckets",
    "openai_costs_csv": "openai_costs",
    "anthropic_usage_csv": "anthropic_console_csv",
    "anthropic_cost_csv": "anthropic_console_csv",
    "openrouter_daily_activity_csv": "openrouter_daily_activity",
    "openrouter_daily_activity_pages": "openrouter_daily_activity",
    "new_api_logs_csv": "new_api_logs",
    "new_api_log_pages": "new_api_logs",
    "llamacpp_log_jsonl": "llamacpp_log",
    "sglang_bench": "vllm_bench_result",
    "amd_smi_json_document": "amd_smi_json",
    "rocm_smi_json": "amd_smi_json",
    "tgi_log_jsonl": "tgi_log",
    "tgi_log_jsonl_container_log": "tgi_log",
    "gpustack_usage_details": "gpustack_usage",
    "gpustack_usage_details_csv": "gpustack_usage",
    "gpustack_model_usages": "gpustack_usage",
    "gpustack_model_usages_csv": "gpustack_usage",
    "gpustack_usage_csv": "gpustack_usage",
    "litellm_spend_logs_csv": "litellm_spend_logs",
    "langfuse_observations_csv": "langfuse_observations",
    "langfuse_observation_pages": "langfuse_observations",
    "portkey_logs_csv": "portkey_logs",
    "bifrost_logs_csv": "bifrost_logs",
    "bifrost_log_pages": "bifrost_logs",
    "tensorzero_inferences_csv": "tensorzero_inferences",
    "tensorzero_inference_pages": "tensorzero_inferences",
    "langsmith_runs_csv": "langsmith_runs",
    "langsmith_run_pages": "langsmith_runs",
    "helicone_requests_csv": "helicone_requests",
    "helicone_request_pages": "helicone_requests",
    "langfuse_traces": "langfuse_observations",
    "langsmith_runs_parquet": "langsmith_runs",
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
