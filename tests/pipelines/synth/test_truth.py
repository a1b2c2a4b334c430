"""truth.json against a plain reading of the lines: sums, peaks, repetition, costs, incidents."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import pytest

REDACTED = "redacted-by-litellm"


def alias(row):
    return row["metadata"]["user_api_key_alias"]


def is_served(row):
    return row["status"] == "success"


def is_cancelled(row):
    return row["error_information"]["error_code"] == "499"


def contents(row):
    return [message["content"] for message in row["messages"]]


def is_redacted(row):
    return contents(row) == [REDACTED]


def usage(row):
    return row["metadata"]["usage_object"]


def cached(row):
    details = usage(row).get("prompt_tokens_details")
    return None if details is None else details["cached_tokens"]


def written(row):
    return usage(row).get("cache_creation_input_tokens", 0)


def iso(seconds):
    text = datetime.fromtimestamp(round(seconds * 1_000_000) // 1_000_000, tz=UTC)
    return text.replace(microsecond=round(seconds * 1_000_000) % 1_000_000).isoformat(timespec="microseconds")


def cost(row):
    return Decimal(repr(row["response_cost"]))


def totals(rows):
    """The slow, obvious sums."""
    served = [row for row in rows if is_served(row)]
    known = [row for row in served if cached(row) is not None]
    hits = [row for row in served if row["cache_hit"]]
    read, write = sum(map(cached, known)), sum(map(written, known))
    return {
        "input": sum(row["prompt_tokens"] for row in served),
        "uncached_input": sum(row["prompt_tokens"] for row in known) - read - write,
        "input_cache_unknown": sum(row["prompt_tokens"] for row in served if cached(row) is None),
        "cache_read": read,
        "cache_write": write,
        "output": sum(row["completion_tokens"] for row in served),
        "reasoning": sum(
            (usage(row).get("completion_tokens_details") or {}).get("reasoning_tokens", 0) for row in served
        ),
        "requests_ok": sum(not is_cancelled(row) for row in served),
        "requests_error": len(rows) - len(served),
        "requests_cancelled": sum(map(is_cancelled, served)),
        "requests_usage_missing": sum(not usage(row) for row in served),
        "requests_cache_unknown": sum(cached(row) is None for row in served),
        "from_response_cache": {
            "requests": len(hits),
            "input": sum(row["prompt_tokens"] for row in hits),
            "output": sum(row["completion_tokens"] for row in hits),
        },
        "spend_usd": f"{sum(map(cost, rows), Decimal()):.9f}",
    }


def test_totals_are_the_sums_of_the_lines(week, records):
    _, truth = week
    nothing = {"failed_estimated": {"requests": 0, "input": 0, "output": 0}}
    assert totals(records) | nothing == truth.tokens
    assert truth.spend_usd == truth.tokens["spend_usd"]
    assert truth.rows["all"] == len(records)
    assert truth.lines - truth.duplicate_lines == len(records)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("by_model", lambda row: row["model"]),
        ("by_team", lambda row: row["metadata"]["user_api_key_team_id"] or "unattributed"),
    ],
)
def test_parts_are_the_sums_of_their_lines(week, records, part, name):
    groups = defaultdict(list)
    for row in records:
        groups[name(row)].append(row)
    assert {key: totals(rows) for key, rows in groups.items()} == getattr(week[1], part)


def test_peak_minutes_are_the_largest_minutes(week, records):
    sums = defaultdict(Counter)
    for row in records:
        if not is_served(row) or row["cache_hit"]:
            continue
        minute = int(row["startTime"] // 60) * 60
        counts = {"input_tokens": row["prompt_tokens"], "output_tokens": row["completion_tokens"]}
        counts |= {"requests": 1, "total_tokens": sum(counts.values())}
        for scope in ("all", f"model:{row['model']}"):
            for measure, value in counts.items():
                sums[scope, measure][minute] += value
    stated = [peak for peak in week[1].peaks if peak["window"] == "utc_minute"]
    assert len(stated) == sum(max(counter.values()) > 0 for counter in sums.values())
    for peak in stated:
        counter = sums[peak["scope"], peak["measure"]]
        assert peak["value"] == max(counter.values())
        start = datetime.fromisoformat(peak["start"]).timestamp()
        assert counter[int(start)] == peak["value"]


def test_sliding_peaks_are_the_largest_stretches_of_a_minute(week, records):
    starts = defaultdict(list)
    for row in records:
        if is_served(row) and not row["cache_hit"]:
            for scope in ("all", f"model:{row['model']}"):
                starts[scope].append(round(row["startTime"] * 1_000_000))
    for peak in week[1].peaks:
        if peak["window"] == "sliding":
            at = starts[peak["scope"]]
            assert peak["value"] == max(
                sum(first <= other < first + 60_000_000 for other in at) for first in at
            )


def test_the_launch_is_the_peak_of_the_week(week):
    _, truth = week
    peak = next(peak for peak in truth.peaks if (peak["scope"], peak["measure"]) == ("all", "requests"))
    burst = truth.of_kind("launch_burst")
    assert burst.first_at <= burst.detail["peak_minute"] <= burst.last_at
    assert burst.first_at[:16] <= peak["start"][:16] <= burst.last_at[:16]


def test_logged_prompts_have_a_token_for_every_four_bytes(records):
    with_body = [row for row in records if is_served(row) and not is_redacted(row)]
    assert with_body
    for row in with_body:
        size = sum(len(content.encode()) for content in contents(row))
        assert size == 4 * row["prompt_tokens"]


def test_repeated_tokens_are_those_of_messages_sent_before(week, records):
    """Seen-before prefixes at message boundaries, found with a plain set."""
    _, truth = week
    entries = [
        planted for planted in truth.planted if planted.kind in {"repeated_documents", "cached_documents"}
    ]
    assert [planted.key_alias for planted in entries] == ["contract-review", "kb-search", "handbook-search"]
    for planted in entries:
        seen, again, documents = set(), 0, 0
        for row in records:
            if alias(row) != planted.key_alias:
                continue
            texts = [message["content"] for message in row["messages"]]
            prefixes = [tuple(texts[:length]) for length in range(1, len(texts) + 1)]
            longest = max((prefix for prefix in prefixes if prefix in seen), key=len, default=())
            again += sum(map(len, longest)) // 4
            documents += len(longest) == 2
            seen.update(prefixes)
        assert again == planted.tokens + planted.detail["system_text_again_tokens"]
        assert documents == planted.requests


def test_repeated_documents_come_within_minutes_and_after_the_first_answer_began(records):
    last = {}
    for row in records:
        if alias(row) != "contract-review":
            continue
        document = row["messages"][1]["content"]
        if document in last:
            assert row["startTime"] - last[document]["startTime"] < 300
            assert row["startTime"] > last[document]["startTime"] + 10
        last[document] = row
        assert cached(row) == 0


def test_the_controls_read_what_can_be_read(week):
    for planted in week[1].planted:
        if planted.kind == "cached_documents":
            assert planted.detail["missed_tokens"] == 0
            assert planted.detail["cache_read_tokens"] >= planted.detail["cacheable_tokens"] > 0
    waste = week[1].of_kind("repeated_documents")
    assert 0 < waste.detail["missed_tokens"] <= waste.tokens


def test_money_missed_is_the_difference_of_the_list_prices_net_of_writing_each_document_once(week, records):
    waste = week[1].of_kind("repeated_documents").detail
    documents = defaultdict(list)
    for row in records:
        if alias(row) == "contract-review":
            documents[row["messages"][1]["content"]].append(row)
    written = sum(
        sum(len(message["content"]) for message in rows[0]["messages"][:2]) // 4
        for rows in documents.values()
        if len(rows) > 1
    )
    assert waste["written_once_tokens"] == written
    saved = waste["missed_tokens"] * Decimal("0.0000135") - written * Decimal("0.00000375")
    assert Decimal(waste["missed_usd"]) == saved


def test_session_upper_bound_is_what_the_turn_before_had(week, records):
    kinds = {"agent-cli": "agent_sessions", "agent-ci": "agent_sessions_without_cache"}
    for key, kind in kinds.items():
        turns = defaultdict(list)
        for row in records:
            if alias(row) == key:
                assert row["session_id"] == row["trace_id"]
                assert is_redacted(row)
                turns[row["session_id"]].append(row)
        bound = 0
        for rows in turns.values():
            for before, row in pairwise(rows):
                if (
                    row["startTime"] - before["startTime"] <= 300
                    and row["prompt_tokens"] >= before["prompt_tokens"]
                ):
                    bound += min(row["prompt_tokens"], before["prompt_tokens"] + before["completion_tokens"])
        planted = week[1].of_kind(kind)
        assert planted.detail["session_upper_bound_tokens"] == bound
        assert planted.detail["sessions"] == len(turns)


def test_agent_cache_reads_lie_inside_the_prompt_and_add_up(records):
    for row in records:
        if alias(row) == "agent-cli":
            assert 0 < row["prompt_tokens"] - cached(row) - written(row) < 10


def test_the_gap_holds_no_call_and_the_truth_says_what_it_swallowed(week, records):
    (gap,) = week[1].gaps
    start, end = (datetime.fromisoformat(gap[name]).timestamp() for name in ("start", "end"))
    assert end - start == 5 * 3600
    assert not [row for row in records if start <= row["startTime"] < end]
    assert gap["requests_lost"] > 50


def test_the_overlap_repeats_the_end_of_the_day_before(week):
    out, truth = week
    (planted,) = [planted for planted in truth.planted if planted.kind == "overlapping_export"]
    count = planted.requests
    before = (out / "gateway/2026-11-17.jsonl").read_text().splitlines()
    after = (out / planted.detail["in_file"]).read_text().splitlines()
    assert before[-count:] == after[:count]
    assert truth.duplicate_lines == count


def test_failed_attempts_share_the_call_of_the_attempt_that_made_them_good(week, records):
    calls = defaultdict(list)
    for row in records:
        calls[row["litellm_call_id"]].append(row)
    counted = Counter()
    for attempts in calls.values():
        for row in attempts:
            if is_served(row):
                continue
            assert row["prompt_tokens"] == row["completion_tokens"] == row["response_cost"] == 0
            good = [other for other in attempts if is_served(other)]
            if not good:
                counted["failed_calls"] += 1
                continue
            headers = good[0]["hidden_params"]["additional_headers"]
            assert good[0]["startTime"] > row["endTime"]
            if headers["x-litellm-attempted-fallbacks"]:
                assert good[0]["model"] != row["model"]
                counted["fallback_attempts"] += 1
            else:
                assert good[0]["model"] == row["model"]
                counted["retried_attempts"] += 1
    stated = Counter()
    for planted in week[1].planted:
        if planted.kind in counted:
            stated[planted.kind] += planted.requests
    assert stated == counted


def test_response_cache_hits_repeat_an_answer_at_no_cost(week, records):
    ids = {row["id"] for row in records}
    hits = [row for row in records if row["cache_hit"]]
    assert len(hits) == week[1].of_kind("response_cache_hits").requests
    for row in hits:
        assert row["response_cost"] == 0
        assert row["prompt_tokens"] > 0
        assert row["id"].split("_cache_hit")[0] in ids


def test_the_rest_of_what_is_planted_is_in_the_lines(week, records):
    _, truth = week
    counted = {
        "oversize_prompts": [
            r for r in records if alias(r) == "ticket-labels" and r["prompt_tokens"] >= 60_000
        ],
        "client_disconnects": [r for r in records if is_cancelled(r)],
        "usage_missing": [r for r in records if is_served(r) and not usage(r)],
        "unattributed_key": [
            r for r in records if is_served(r) and r["metadata"]["user_api_key_team_id"] is None
        ],
        "unpriced_model": [r for r in records if r["response_cost_failure_debug_info"]],
    }
    for kind, rows in counted.items():
        planted = truth.of_kind(kind)
        assert (planted.requests, planted.tokens) == (len(rows), sum(row["prompt_tokens"] for row in rows))
        assert planted.first_at == iso(rows[0]["startTime"]).replace("+00:00", "Z")
        assert planted.last_at == iso(rows[-1]["startTime"]).replace("+00:00", "Z")


def test_costs_are_list_prices(records):
    """Every seventh row against genai-prices itself."""
    from genai_prices import Usage, calc_price

    ours = {"hosted_vllm/llama-3.3-70b", "hosted_vllm/qwen3-8b", "acme-support-tuned-2"}
    priced = 0
    for row in records[::7]:
        if row["model"] in ours or not is_served(row) or row["cache_hit"]:
            assert row["response_cost"] == 0
            continue
        counts = Usage(
            input_tokens=row["prompt_tokens"],
            cache_read_tokens=cached(row) or 0,
            cache_write_tokens=written(row),
            output_tokens=row["completion_tokens"],
        )
        at = datetime.fromtimestamp(row["startTime"], tz=UTC)
        price = calc_price(
            counts, row["model"], provider_id=row["custom_llm_provider"], genai_request_timestamp=at
        )
        assert cost(row) == price.total_price
        priced += 1
    assert priced
