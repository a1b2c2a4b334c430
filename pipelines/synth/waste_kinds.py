"""The kinds of waste that can be planted in the example week, one by one.

Belongs here: their names and what each leaves out when it is not planted. Does not belong here: planting
(`sessions.py`, `traffic.py`, `incidents.py`), counting what was planted (`planted.py`).

A kind that is left out is mended, not absent: the same calls at the same time with the same answers, as they would be
after its advice had been followed. So a week with one kind less is the counterfactual of the findings of that kind, and
a week with none has nothing to be found.
"""

from __future__ import annotations

from parsers.errors import SiteConfigError

REPEATED_DOCUMENTS = "repeated_documents"
AGENTS_WITHOUT_CACHE = "agent_sessions_without_cache"
OVERSIZE_PROMPTS = "oversize_prompts"
FAILED_ATTEMPTS = "failed_attempts"
REPEATED_QUESTIONS = "repeated_questions"
PAST_PRICE_STEP = "contexts_past_price_step"
UNSTATED_READS = "unstated_cache_reads"
MISSED_HANDBOOK = "missed_handbook"
EXPIRED_HANDBOOK = "expired_handbook"
REPEATED_POLICIES = "repeated_policy_questions"
REPEATED_EMBEDDINGS = "repeated_embeddings"
SHORT_TASKS = "short_tasks_on_large_model"
NIGHTLY_AT_FULL_PRICE = "nightly_calls_at_full_price"
TRUNCATED_OUTPUTS = "truncated_outputs"

MENDED = {
    REPEATED_DOCUMENTS: "contract-review asks for caching, and each document is read from the cache",
    AGENTS_WITHOUT_CACHE: "agent-ci asks for caching, as agent-cli does",
    OVERSIZE_PROMPTS: "the dumps are trimmed to what is usual for a label",
    FAILED_ATTEMPTS: "no attempt fails",
    REPEATED_QUESTIONS: "the gateway's response cache keeps an answer for the whole week, not for an hour",
    PAST_PRICE_STEP: "agents compact their context before the model's price step",
    UNSTATED_READS: "the engine of the small own model states its cache reads",
    MISSED_HANDBOOK: "policy-bot's calls find the handbook in the cache",
    EXPIRED_HANDBOOK: "the provider keeps the handbook for as long as a day, not for minutes (once it is read at all)",
    REPEATED_POLICIES: "the gateway's response cache answers policy-bot's repeated prompts",
    REPEATED_EMBEDDINGS: "wiki-index embeds what has changed only",
    SHORT_TASKS: "four of five of title-maker's calls go to the small model of the same price list",
    NIGHTLY_AT_FULL_PRICE: "review-mining sends its calls as a batch",
    TRUNCATED_OUTPUTS: "clause-drafts allows its answers the length that they need",
}
"""Kind -> what happens in its place."""

ALL = frozenset(MENDED)


def kinds_of(text: str) -> frozenset[str]:
    """Kinds from a list with commas; `all` and `none` stand for every kind and for no kind.

    Raises:
        SiteConfigError: a name is no kind.

    """
    if text in ("all", "none"):
        return ALL if text == "all" else frozenset()
    kinds = frozenset(name.strip() for name in text.split(","))
    unknown = sorted(kinds - ALL)
    if unknown:
        raise SiteConfigError(
            f"no kind of waste: {', '.join(unknown)}",
            where="--waste",
            remedy=f"Name some of: {', '.join(MENDED)}; or `all`, or `none`.",
        )
    return kinds
