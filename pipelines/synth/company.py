"""Who exists in the example week: teams, keys, models with their prices and speed, workloads.

Belongs here: frozen facts about the example company. Does not belong here: when calls happen (`traffic.py`),
what is wrong with them (`sessions.py`, `incidents.py`).

List prices are those of genai-prices 0.2.3 on 2026-11-16 (a test compares them). Speeds of the own 70B model,
on 2 x H100 a replica, take about 1.7 times as long as measured for Llama 70B in FP8 on 4 x H100 at low
concurrency (ai-dynamo/aiconfigurator: TTFT 121 ms at 1,024 and 583 ms at 8,192 input tokens, TPOT 13 ms to
18 ms); the others are round figures for an example.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import date

START = date(2026, 11, 16)
REQUESTS_PER_WEEK = 20_000
NANO_USD = 1_000_000_000
UNKNOWN = -1
"""Marks a count that the log does not state, in integer arrays."""


@dataclass(frozen=True, slots=True)
class Price:
    """List price in billionths of a dollar per token; `above` holds if the input exceeds `cliff_tokens`."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    cliff_tokens: int | None = None
    above: Price | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model behind the gateway.

    `log_name` is what LiteLLM writes as `model` (own engines under the prefix of their provider), `name` what
    clients ask for. Time to first token is `ttft_ms + ttft_ms_per_token x uncached input`; each further token
    takes `tpot_ms`.
    """

    name: str
    provider: str
    log_name: str
    deployments: tuple[str, ...]
    api_bases: tuple[str, ...]
    ttft_ms: float
    ttft_ms_per_token: float
    tpot_ms: float
    price: Price | None
    is_own: bool = False
    states_cache_reads: bool = True
    states_cache_writes: bool = False
    reasoning_ratio: float = 0.0
    call_type: str = "acompletion"
    route: str = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Team:
    """A team that pays; the gateway's id of the team and its alias are the same."""

    name: str
    cost_center: str


@dataclass(frozen=True, slots=True)
class Key:
    """A virtual key of the gateway; `team` is None for a key that nobody owns up to."""

    alias: str
    team: Team | None
    user: str | None
    client: str
    end_user: str | None = None

    @property
    def hash(self) -> str:
        """What the gateway logs in place of the key (64 hexadecimal digits)."""
        return hashlib.sha256(f"example key {self.alias}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Sizes:
    """Log-normal sizes in tokens: median, sigma of the logarithm, and bounds."""

    median: float
    sigma: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Workload:
    """Calls of one kind: whose keys, which model, when (`rhythm`), how many a week, how large.

    `body`: `redacted` (the gateway's redaction text), `short` (a shared system text and a question of the
    caller's own). `cached_ratio` is the share of the input that the own engine reports as read from its
    cache.
    """

    name: str
    keys: tuple[str, ...]
    model: str
    weekly: int
    rhythm: str
    input: Sizes
    output: Sizes
    stream_ratio: float = 0.0
    body: str = "redacted"
    cached_ratio: float = 0.0
    system_tokens: int = 0


CUSTOMER_CARE = Team("customer-care", "CC-100")
WORKPLACE = Team("workplace", "CC-200")
ENGINEERING = Team("engineering", "CC-300")
LEGAL = Team("legal", "CC-400")
DATA = Team("data", "CC-500")
TEAMS = (CUSTOMER_CARE, WORKPLACE, ENGINEERING, LEGAL, DATA)
ORGANIZATION = "org-acme"

# Markup in a field that any caller may fill: whoever shows it has to escape it.
HOSTILE_END_USER = "<img src=x onerror=alert(1)>"

KEYS = (
    Key("portal-web", CUSTOMER_CARE, "portal@acme.example", "openai-node/6.3.0"),
    Key("mobile-app", CUSTOMER_CARE, "mobile@acme.example", "okhttp/5.1.0"),
    Key("launch-page", CUSTOMER_CARE, "portal@acme.example", "openai-node/6.3.0"),
    Key("faq-bot", CUSTOMER_CARE, "bots@acme.example", "openai-python/2.8.0"),
    Key("ticket-labels", CUSTOMER_CARE, "bots@acme.example", "openai-python/2.8.0"),
    Key("support-tuned", CUSTOMER_CARE, "bots@acme.example", "openai-python/2.8.0"),
    Key("intranet-chat", WORKPLACE, "intranet@acme.example", "openai-python/2.8.0"),
    Key("handbook-search", WORKPLACE, "intranet@acme.example", "openai-python/2.8.0"),
    Key("agent-cli", ENGINEERING, "dev@acme.example", "agent-cli/1.4.2"),
    Key("agent-ci", ENGINEERING, "ci@acme.example", "agent-ci/0.9.0"),
    Key("kb-search", ENGINEERING, "kb@acme.example", "openai-python/2.8.0"),
    Key("contract-review", LEGAL, "legal@acme.example", "openai-python/2.8.0"),
    Key("nightly-summaries", DATA, "batch@acme.example", "python-httpx/0.28.1"),
    Key("index-refresh", DATA, "batch@acme.example", "python-httpx/0.28.1"),
    Key("legacy-script", None, None, "curl/8.5.0", HOSTILE_END_USER),
    Key("policy-bot", WORKPLACE, "intranet@acme.example", "openai-python/2.8.0"),
    Key("title-maker", WORKPLACE, "intranet@acme.example", "openai-node/6.3.0"),
    Key("wiki-index", ENGINEERING, "kb@acme.example", "python-httpx/0.28.1"),
    Key("review-mining", DATA, "batch@acme.example", "python-httpx/0.28.1"),
    Key("clause-drafts", LEGAL, "legal@acme.example", "openai-python/2.8.0"),
)

MODELS = (
    Model(
        "llama-3.3-70b",
        "hosted_vllm",
        "hosted_vllm/llama-3.3-70b",
        ("llama-70b-a", "llama-70b-b"),
        ("http://llama-a.acme.example:8000/v1", "http://llama-b.acme.example:8000/v1"),
        95.0,
        0.11,
        23.0,
        None,
        is_own=True,
    ),
    Model(
        "qwen3-8b",
        "hosted_vllm",
        "hosted_vllm/qwen3-8b",
        ("qwen-8b-a",),
        ("http://qwen-a.acme.example:8000/v1",),
        40.0,
        0.08,
        13.0,
        None,
        is_own=True,
        # The engine runs without --enable-prompt-tokens-details, so nothing is known of its prefix cache.
        states_cache_reads=False,
    ),
    Model(
        "gpt-5-mini",
        "openai",
        "gpt-5-mini",
        ("openai-mini",),
        ("https://api.openai.com/v1",),
        620.0,
        0.02,
        9.0,
        Price(input=250, output=2_000, cache_read=25),
        reasoning_ratio=0.4,
    ),
    Model(
        "claude-opus-4-1",
        "anthropic",
        "claude-opus-4-1",
        ("anthropic-opus",),
        ("https://api.anthropic.com",),
        1_300.0,
        0.05,
        19.0,
        Price(input=15_000, output=75_000, cache_read=1_500, cache_write=18_750),
        states_cache_writes=True,
    ),
    Model(
        "claude-sonnet-4-5",
        "anthropic",
        "claude-sonnet-4-5",
        ("anthropic-sonnet",),
        ("https://api.anthropic.com",),
        900.0,
        0.04,
        15.0,
        Price(
            input=3_000,
            output=15_000,
            cache_read=300,
            cache_write=3_750,
            cliff_tokens=200_000,
            above=Price(input=6_000, output=22_500, cache_read=600, cache_write=7_500),
        ),
        states_cache_writes=True,
    ),
    Model(
        "text-embedding-3-small",
        "openai",
        "text-embedding-3-small",
        ("openai-embed",),
        ("https://api.openai.com/v1",),
        90.0,
        0.02,
        0.0,
        Price(input=20, output=0),
        states_cache_reads=False,
        call_type="aembedding",
        route="/v1/embeddings",
    ),
    Model(
        "acme-support-tuned-2",
        "openai",
        "acme-support-tuned-2",
        ("tuned-support",),
        ("https://tuned.example.net/v1",),
        300.0,
        0.05,
        12.0,
        None,
        states_cache_reads=False,
    ),
    # Nobody calls it until short tasks are routed to it.
    Model(
        "claude-haiku-4-5",
        "anthropic",
        "claude-haiku-4-5",
        ("anthropic-haiku",),
        ("https://api.anthropic.com",),
        450.0,
        0.02,
        6.0,
        Price(input=1_000, output=5_000, cache_read=100, cache_write=1_250),
        states_cache_writes=True,
    ),
)

_CHAT_OUT = Sizes(420, 0.7, 8, 2_000)
_SHORT_OUT = Sizes(90, 0.5, 4, 400)

PORTAL = Workload(
    "portal chat",
    ("portal-web", "portal-web", "mobile-app"),
    "llama-3.3-70b",
    6_800,
    "people",
    Sizes(2_600, 0.8, 200, 20_000),
    _CHAT_OUT,
    stream_ratio=0.9,
    cached_ratio=0.35,
)
INTRANET = Workload(
    "intranet chat",
    ("intranet-chat",),
    "qwen3-8b",
    2_200,
    "office",
    Sizes(45, 0.5, 12, 150),
    Sizes(180, 0.6, 8, 800),
    stream_ratio=0.7,
    body="short",
    system_tokens=56,
)
LABELS = Workload(
    "ticket labels",
    ("ticket-labels",),
    "gpt-5-mini",
    900,
    "office",
    Sizes(90, 0.4, 24, 200),
    Sizes(16, 0.2, 10, 30),
    body="short",
    system_tokens=60,
)
SUMMARIES = Workload(
    "nightly summaries",
    ("nightly-summaries",),
    "llama-3.3-70b",
    3_300,
    "night",
    Sizes(11_000, 0.4, 2_000, 30_000),
    Sizes(700, 0.3, 200, 1_500),
)
EMBEDDINGS = Workload(
    "embeddings",
    ("index-refresh",),
    "text-embedding-3-small",
    500,
    "index",
    Sizes(1_500, 0.6, 100, 8_000),
    Sizes(0, 0.0, 0, 0),
)
LEGACY = Workload(
    "legacy script",
    ("legacy-script",),
    "gpt-5-mini",
    300,
    "flat",
    Sizes(120, 0.4, 20, 250),
    _SHORT_OUT,
    body="short",
    system_tokens=20,
)
TUNED = Workload(
    "tuned support model",
    ("support-tuned",),
    "acme-support-tuned-2",
    250,
    "office",
    Sizes(700, 0.5, 100, 4_000),
    _SHORT_OUT,
)
ORDINARY = (PORTAL, INTRANET, LABELS, SUMMARIES, EMBEDDINGS, LEGACY, TUNED)

# Below: calls that `sessions.py` makes, and the rush after the launch.
FAQ_WEEKLY = 1_300
DOCUMENT_WEEKLY = {"contract-review": 1_200, "kb-search": 600, "handbook-search": 700}
DOCUMENT_MODELS = {
    "contract-review": "claude-opus-4-1",
    "kb-search": "gpt-5-mini",
    "handbook-search": "llama-3.3-70b",
}
AGENT_MODEL = "claude-sonnet-4-5"
AGENT_WEEKLY = {"agent-cli": 900, "agent-ci": 250}
OVERSIZE_WEEKLY = 20
BURST_WEEKLY = 400
HABITS_WEEKLY = {
    "policy-bot": 300,
    "title-maker": 400,
    "wiki-index": 300,
    "review-mining": 400,
    "clause-drafts": 300,
}
"""Calls of `habits.py`."""

CAPPED_WEEKLY = OVERSIZE_WEEKLY + sum(
    sum(weekly.values()) for weekly in (DOCUMENT_WEEKLY, AGENT_WEEKLY, HABITS_WEEKLY)
)
"""Calls that do not grow beyond the usual volume: see `Day` in `traffic.py`."""
ALL_WEEKLY = CAPPED_WEEKLY + sum(work.weekly for work in ORDINARY) + FAQ_WEEKLY + BURST_WEEKLY
"""A little more than REQUESTS_PER_WEEK: the gap in the log takes the rest."""

KEY_NUMBER = {key.alias: number for number, key in enumerate(KEYS)}
MODEL_NUMBER = {model.name: number for number, model in enumerate(MODELS)}
