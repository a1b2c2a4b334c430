"""Which priced model a (provider, model) pair of a log means: declared aliases and strict matching.

Belongs here: provider names as gateways and traces write them, engines that mean one's own hardware, and the
rules by which a model name is accepted. Does not belong here: prices (`warehouse/prices.py`).

Strictness: a rule "begins with X" accepts X followed by what marks a version (date, v1:0, latest, preview),
    and nothing
else: `deepseek-chat-anything` is another model whose price is unknown. Open-weight names without a provider
are not priced either, since anybody may serve them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

# Provider of the price table <- names that LiteLLM, OpenTelemetry, Vercel, Portkey, Helicone and others
# write.
PROVIDER_ALIASES: dict[str, tuple[str, ...]] = {
    "anthropic": ("anthropic", "anthropic_text"),
    "aws": (
        "aws", "aws.bedrock", "aws-bedrock", "aws_bedrock", "bedrock", "bedrock_converse", "bedrock_mantle",
        "amazon", "amazon-bedrock", "amazon_bedrock",
    ),
    "azure": (
        "azure", "azure_ai", "azure_text", "azure-openai", "azure_openai", "azureopenai", "azure.ai.openai",
        "azure.ai.inference", "az.ai.openai", "az.ai.inference", "azure-ai",
    ),
    "baseten": ("baseten",),
    "cerebras": ("cerebras",),
    "cloudflare": ("cloudflare", "workers-ai"),
    "cohere": ("cohere",),
    "databricks": ("databricks",),
    "deepseek": ("deepseek",),
    "fireworks": ("fireworks", "fireworks_ai", "fireworks-ai"),
    "github-copilot": ("github_copilot", "github-copilot"),
    "google": (
        "google", "gemini", "vertex_ai", "vertex_ai_beta", "vertexai", "vertex-ai", "google-vertex",
        "google_vertex", "google-vertex-ai", "google-ai-studio", "google_ai_studio", "gcp.gemini",
        "gcp.vertex_ai", "gcp.gen_ai", "google-generative-ai", "google_genai", "google_vertexai", "google-gla",
    ),
    "groq": ("groq",),
    "minimax": ("minimax",),
    "mistral": (
        "mistral", "mistralai", "mistral_ai", "mistral-ai", "codestral", "text-completion-codestral",
    ),
    "moonshotai": ("moonshot", "moonshotai", "moonshot-ai"),
    "novita": ("novita", "novita-ai"),
    "openai": ("openai", "text-completion-openai"),
    "openrouter": ("openrouter",),
    "ovhcloud": ("ovhcloud",),
    "perplexity": ("perplexity", "perplexity-ai"),
    "together": ("together", "together_ai", "together-ai", "togetherai"),
    "voyageai": ("voyage", "voyageai"),
    "x-ai": ("x-ai", "xai", "x_ai"),
    "zai": ("zai", "z-ai", "z.ai"),
    "zhipuai": ("zhipu", "zhipuai", "bigmodel"),
}  # fmt: skip
# What the Vercel AI SDK and others append to a provider: the API that was called (openai.responses, anthropic.messages).
_API = re.compile(
    r"[._-](?:chat|completions?|messages|responses|embeddings?|images?|transcriptions?|speech|generative-ai)$"
)
# LiteLLM writes vertex_ai-language-models, the AI SDK google.vertex.chat and vertex.anthropic.messages.
_VERTEX = ("vertex_ai", "google.vertex.", "vertex.")
_PROVIDER_OF = {alias: provider for provider, aliases in PROVIDER_ALIASES.items() for alias in aliases}

# Engines and routes that answer from one's own (or rented) hardware: a vendor's list price never applies.
SELF_HOSTED = frozenset({
    "hosted_vllm", "vllm", "openai_like", "custom_openai", "ollama", "ollama_chat", "lm_studio", "lmstudio",
    "llamafile", "llamacpp", "llama.cpp", "llama_cpp", "sglang", "triton", "tensorrt_llm", "trtllm", "tgi",
    "text-generation-inference", "xinference", "localai", "gpustack", "docker_model_runner", "self-hosted",
    "self_hosted", "local", "lmdeploy", "mindie", "rtp-llm", "tei",
})  # fmt: skip

# Gateways that put themselves where the provider belongs: as good as no provider.
_NO_PROVIDER = frozenset({"", "litellm", "litellm_proxy", "gateway", "unknown", "none", "null"})

_BEDROCK_PUBLISHERS = (
    "anthropic|amazon|meta|mistral|cohere|deepseek|qwen|openai|writer|nvidia|moonshotai|zai|google"
)
# Names that only one vendor sells under; applied where the log names no provider, and said so.
_SOLE_VENDOR: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), provider)
    for pattern, provider in (
        (rf"^((us|us-gov|eu|apac|au|jp|in|ca|global)\.)?({_BEDROCK_PUBLISHERS})\.[a-z]", "aws"),
        (r"^claude-", "anthropic"),
        (r"^(gpt-(?!oss)|chatgpt-|o[134](-|$)|text-embedding-(3|ada)|ft:gpt-|codex-|computer-use)", "openai"),
        (r"^gemini-", "google"),
        (r"^grok-[3-9]", "x-ai"),
        (r"^command-", "cohere"),
        (r"^deepseek-(chat|reasoner)$", "deepseek"),
        (r"^(mistral|ministral|magistral|codestral|devstral|pixtral|voxtral)-[a-z0-9-]*latest$", "mistral"),
        (r"^sonar", "perplexity"),
        (r"^voyage-", "voyageai"),
    )
)

# Prefixes that are also publishers of open weights: openai/gpt-oss-120b without a provider may be anybody's
# server.
_WEIGHT_PUBLISHERS = frozenset(
    {"amazon", "databricks", "google", "mistralai", "moonshotai", "openai", "perplexity-ai"}
)

_DATE = r"(?:20\d{2}-?[01]\d-?[0-3]\d|[01]\d-[0-3]\d|[01]\d-20\d{2}|[01]\d[0-3]\d|\d{3})"
_VERSION = re.compile(
    rf"(?:[-@:._]?(?:{_DATE}|v\d+(?::\d+)?|latest|default|preview|exp|experimental|stable|thinking|0))*"
)
_TUNED = re.compile(r"[\d-]*(:[\w.-]*)*")
_TRAILING_DATE = re.compile(r"[-@](?P<year>20\d{2})-?(?P<month>[01]\d)-?(?P<day>[0-3]\d)$")
_ROUTE_END = ("/", ".", ":")


class Match(NamedTuple):
    """A priced model and how it was found; `how` is null when provider and name were taken as they stand."""

    provider: str
    model: str
    priced_as: str
    how: str | None


class _Rule(NamedTuple):
    model: str
    priced_as: str
    rule: str
    text: str
    also: re.Pattern[str] | None


@dataclass
class PriceNames:
    """The rules of `price_names.csv`, by provider, in the order in which they are tried."""

    rules: dict[str, list[_Rule]] = field(default_factory=dict)
    exact: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, names: pl.DataFrame) -> PriceNames:
        """Index the rows: exact names apart; a provider's own models before those it borrows."""
        found = cls()
        ordered = sorted(names.iter_rows(named=True), key=lambda row: (row["provider"], row["rank"]))
        for row in ordered:
            if row["rule"] == "equals":
                found.exact.setdefault((row["provider"], row["text"]), (row["model"], row["priced_as"]))
                continue
            also = re.compile(row["also"]) if row["also"] else None
            rule = _Rule(row["model"], row["priced_as"], row["rule"], row["text"], also)
            found.rules.setdefault(row["provider"], []).append(rule)
        return found

    def find(self, provider: str | None, model: str) -> Match | None:
        """The priced model that a log's (provider, model) means; null if that is not certain.

        Self-hosted engines, unknown providers and names that no rule accepts give null: unpriced, never zero.
        """
        name = model.strip().lower()
        if is_self_hosted(provider, model):
            return None
        target = canonical_provider(provider)
        if target is not None:
            return self._find_at(target, name, None)
        return self._find_by_name(name) if _says_nothing(provider) else None

    def _find_by_name(self, name: str) -> Match | None:
        """Without a provider: the route that the name begins with, else the only vendor of such names."""
        route, _, rest = name.partition("/")
        if rest and route in _PROVIDER_OF:
            if route in _WEIGHT_PUBLISHERS and not any(pattern.match(rest) for pattern, _ in _SOLE_VENDOR):
                return None
            return self._find_at(
                _PROVIDER_OF[route], rest, f"provider read from the model name's prefix {route}/"
            )
        for pattern, vendor in _SOLE_VENDOR:
            if pattern.match(name):
                return self._find_at(vendor, name, "provider inferred from the model name")
        return None

    def _find_at(self, provider: str, name: str, how: str | None) -> Match | None:
        for candidate, note in _forms(provider, name):
            hit = self.exact.get((provider, candidate)) or self._by_rule(provider, candidate)
            if hit is not None:
                notes = [text for text in (how, note) if text]
                return Match(provider, hit[0], hit[1], "; ".join(notes) or None)
        return None

    def _by_rule(self, provider: str, name: str) -> tuple[str, str] | None:
        for rule in self.rules.get(provider, ()):
            if _accepts(rule, name) and (rule.also is None or rule.also.search(name)):
                return rule.model, rule.priced_as
        return None


def canonical_provider(provider: str | None) -> str | None:
    """The price table's name of a provider as a log writes it; null if there is none."""
    if _says_nothing(provider):
        return None
    name = _plain(provider)
    if name.startswith(_VERTEX):
        return "google"
    return _PROVIDER_OF.get(name) or _PROVIDER_OF.get(_API.sub("", name))


def is_self_hosted(provider: str | None, model: str) -> bool:
    """Whether the log says that the call was answered by an engine of one's own."""
    route = model.strip().lower().partition("/")[0] if "/" in model else ""
    name = _plain(provider)
    return not SELF_HOSTED.isdisjoint((name, _API.sub("", name), route))


def _plain(provider: str | None) -> str:
    return (provider or "").strip().lower().replace(" ", "-")


def _says_nothing(provider: str | None) -> bool:
    return (provider or "").strip().lower() in _NO_PROVIDER


def _forms(provider: str, name: str) -> list[tuple[str, str | None]]:
    """Ways to write the name, the most literal first, with what must be said if that form matches."""
    forms: list[tuple[str, str | None]] = [(name, None)]
    route, _, rest = name.partition("/")
    if rest and _PROVIDER_OF.get(route) == provider:
        forms.append((rest, None))
    if rest and provider in ("aws", "azure", "google"):  # regions, publishers and ARNs stand before the name
        forms.append((name.rpartition("/")[2], None))
    for form, _ in tuple(forms):
        dated = _TRAILING_DATE.search(form)
        if dated:
            bare = form[: dated.start()]
            forms.append((f"{bare}-{dated['year']}-{dated['month']}-{dated['day']}", None))
            forms.append((bare, "date suffix of the model name ignored"))
    return forms


def _accepts(rule: _Rule, name: str) -> bool:
    before, after = "", ""
    if rule.rule == "prefix" and name.startswith(rule.text):
        after = name[len(rule.text) :]
    elif rule.rule == "suffix" and name.endswith(rule.text):
        before = name[: len(name) - len(rule.text)]
    elif rule.rule == "contains" and rule.text in name:
        before, _, after = name.partition(rule.text)
    elif rule.rule == "regex" and (hit := re.search(rule.text, name)):
        before, after = name[: hit.start()], name[hit.end() :]
    else:
        return False
    rest = _after_number(rule.text, after)
    tail = _TUNED if rule.text.startswith("ft:") else _VERSION
    return (not before or before.endswith(_ROUTE_END)) and rest is not None and bool(tail.fullmatch(rest))


def _after_number(text: str, after: str) -> str | None:
    """What follows a number that the rule's text begins; null if the name has another number there.

    `claude-sonnet-4-5` does not accept `claude-sonnet-4-55`; `claude-sonnet-4-2025` does accept ...-20250514,
    and `gemini-2.0-flash-0` does accept ...-001.
    """
    stem, digits = re.search(r"\d+$", text), re.match(r"\d+", after)
    if stem is None or digits is None:
        return after
    whole = re.fullmatch(r"20\d{6}|00\d", stem.group() + digits.group())
    return after[digits.end() :] if whole else None
