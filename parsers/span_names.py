"""Names that instrumentations give to what a span says of a call to a model.

Belongs here: attributes of the GenAI conventions (old and new names), OpenLLMetry, OpenInference, the AI SDK,
vLLM and Claude Code (names without a prefix), and the words they use for operations.
Does not belong here: what follows from them (`spans.py`).
"""

from __future__ import annotations

NAMES: dict[str, tuple[str, ...]] = {
    "operation": (
        "gen_ai.operation.name",
        "llm.request.type",
        "openinference.span.kind",
        "ai.operationId",
        "traceloop.span.kind",
        "langfuse.observation.type",
        "span.type",
    ),
    "response_id": ("gen_ai.response.id", "llm.response.id", "gen_ai.request.id", "ai.response.id"),
    "request_of_claude": ("request_id",),
    "model_requested": (
        "gen_ai.request.model",
        "llm.request.model",
        "llm.model_name",
        "embedding.model_name",
        "ai.model.id",
    ),
    "model_served": ("gen_ai.response.model", "llm.response.model", "ai.response.model"),
    "provider": ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider"),
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
        "ai.usage.tokens",
        "input_tokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
        "output_tokens",
    ),
    "cache_read_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.cache_read_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.input_cached_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.cache_write_tokens",
        "gen_ai.usage.details.cache_write_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "gen_ai.usage.details.reasoning_tokens",
        "llm.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
        "codex.usage.reasoning_output_tokens",
    ),
    "read_beside_tokens": ("cache_read_tokens",),
    "written_beside_tokens": ("cache_creation_tokens",),
    "audio_input_tokens": ("llm.token_count.prompt_details.audio",),
    "audio_output_tokens": ("llm.token_count.completion_details.audio",),
    "total_tokens": (
        "llm.usage.total_tokens",
        "gen_ai.usage.total_tokens",
        "llm.token_count.total",
        "ai.usage.totalTokens",
    ),
    "max_output_tokens": (
        "gen_ai.request.max_tokens",
        "llm.request.max_tokens",
        "ai.settings.maxOutputTokens",
    ),
    "cost": ("gen_ai.usage.cost", "llm.cost.total"),
    "ttft_s": (
        "gen_ai.response.time_to_first_chunk",
        "gen_ai.server.time_to_first_token",
        "gen_ai.latency.time_to_first_token",
    ),
    "ttft_ms": ("ai.response.msToFirstChunk", "ttft_ms"),
    "queue_s": ("gen_ai.latency.time_in_queue",),
    "engine": ("gen_ai.latency.e2e",),
    "finish_reason": (
        "gen_ai.response.finish_reasons",
        "ai.response.finishReason",
        "llm.response.finish_reason",
    ),
    "service_tier": ("gen_ai.openai.response.service_tier", "openai.response.service_tier"),
    "stream": ("gen_ai.request.stream", "gen_ai.is_streaming", "llm.is_streaming"),
    "session_id": (
        "gen_ai.conversation.id",
        "session.id",
        "langfuse.session.id",
        "traceloop.association.properties.session_id",
        "ai.telemetry.metadata.sessionId",
    ),
    "user": (
        "user.id",
        "langfuse.user.id",
        "traceloop.association.properties.user_id",
        "ai.telemetry.metadata.userId",
    ),
    "end_user": ("enduser.id",),
    "address": ("server.address", "url.full"),
    "port": ("server.port",),
    "http_status": ("http.response.status_code", "http.status_code"),
    "error_type": ("error.type",),
}
"""What is read -> the attributes that hold it, the newest name first; the first that is there counts.

`*_beside_tokens`: cached tokens that Claude Code counts as Anthropic does, beside the input."""

TOOLS = "gen_ai.tool.definitions"
PROMPTS = (
    TOOLS,
    "gen_ai.system_instructions",
    "gen_ai.input.messages",
    "gen_ai.prompt",
    "ai.prompt.messages",
)
"""Attributes that hold (a part of) a prompt as a JSON array inside a string, in the order of the prompt."""
INDEXED_PROMPTS = ("gen_ai.prompt.", "llm.input_messages.")
"""Prefixes of attributes that hold a prompt in pieces: `gen_ai.prompt.0.content`."""
FIRST_TOKEN_EVENTS = ("First Token Stream Event", "gen_ai.content.completion.chunk", "ai.stream.firstChunk")
READ = tuple(name for names in NAMES.values() for name in names)
TOKEN_PREFIXES = ("gen_ai.usage.", "llm.usage.", "llm.token_count.", "ai.usage.")

OPERATIONS = {
    "chat": "chat",
    "generate_content": "chat",
    "llm": "chat",
    "generation": "chat",
    "llm_request": "chat",
    "responses": "responses",
    "text_completion": "completion",
    "completion": "completion",
    "embeddings": "embedding",
    "embedding": "embedding",
    "rerank": "rerank",
    "reranker": "rerank",
    "ai.generatetext.dogenerate": "chat",
    "ai.streamtext.dostream": "chat",
    "ai.generateobject.dogenerate": "chat",
    "ai.streamobject.dostream": "chat",
    "ai.embed.doembed": "embedding",
    "ai.embedmany.doembed": "embedding",
}
OUTER = (
    "ai.generatetext",
    "ai.streamtext",
    "ai.generateobject",
    "ai.streamobject",
    "ai.embed",
    "ai.embedmany",
)
"""The AI SDK writes these around an inner span in every case."""
SUMS = (
    *(
        "invoke_agent",
        "create_agent",
        "execute_tool",
        "invoke_workflow",
        "retrieval",
        "agent",
        "chain",
        "tool",
        "ai.toolcall",
    ),
    *("retriever", "guardrail", "evaluator", "prompt", "workflow", "task", *OUTER),
)
PROVIDERS = {"az.ai.openai": "azure.ai.openai", "az.ai.inference": "azure.ai.inference"}
