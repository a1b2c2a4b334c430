"""Fixed text on cache curves.

Belongs here: words of the chart and the table of `cache_curves.py`. Does not belong here: text of other parts.
"""

from types import MappingProxyType

CACHE = MappingProxyType(
    {
        "absent": "No curve of several replicas: it needs prefix hashes.",
        "title": "On {replicas} replicas of {capacity} each: {best} of blocks by prefix, {spread} in turn",
        "note": (
            "Caches of equal size side by side; the axis is their size together. By prefix: a call goes to the replica that "
            "was sent the longest part of its prefix, within a bound on load. The rules are in the column basis of "
            "cache_curve."
        ),
        "total": "capacity of all caches together, tokens",
        "single": "1 replica",
        "round_robin": "{replicas} replicas, in turn",
        "session_sticky": "{replicas} replicas, by session",
        "prefix_aware": "{replicas} replicas, by prefix",
        "marks_table": "What a memory would hold, used for KV cache alone",
        "model": "model",
        "mark": "memory of one replica",
        "gib": "GiB",
        "tokens": "tokens",
        "alone": "1 replica",
        "turn": "{replicas} in turn",
        "prefix": "{replicas} by prefix",
        "sampled": "estimated from a sample of blocks; standard error {error}",
    }
)
