"""The slow and obvious cache simulation that the curves are compared with."""

from __future__ import annotations

from collections import OrderedDict


class Replica:
    """A block LRU cache and the memory of its router."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.cache: OrderedDict[int, None] = OrderedDict()
        self.sent: set[int] = set()
        self.load = 0

    def serve(self, chain: list[int]) -> int:
        """Blocks of the unbroken prefix that are held; then all are touched, from the last to the first."""
        hits = next((k for k, block in enumerate(chain) if block not in self.cache), len(chain))
        for block in reversed(chain):
            self.cache[block] = None
            self.cache.move_to_end(block)
            if len(self.cache) > self.capacity:
                self.cache.popitem(last=False)
        self.sent.update(chain)
        self.load += len(chain)
        return hits

    def knows(self, chain: list[int]) -> int:
        """Blocks of the unbroken prefix that were sent here, whatever is still held."""
        return next((k for k, block in enumerate(chain) if block not in self.sent), len(chain))


def simulate(
    chains: list[list[int]],
    capacity: int,
    replicas: int = 1,
    routing: str = "single",
    sessions: list[str | None] | None = None,
    bound: float = 1.25,
    slack_calls: float = 32.0,
) -> list[int]:
    """Hit blocks of each call."""
    pool = [Replica(capacity) for _ in range(replicas)]
    homes: dict[object, int] = {}
    hits = []
    for i, chain in enumerate(chains):
        if routing == "prefix_aware":
            total = sum(replica.load for replica in pool)
            highest = bound * total / replicas + slack_calls * total / max(i, 1)
            least = min(pool, key=lambda replica: replica.load)
            open_ones = [replica for replica in pool if replica.load <= highest or replica is least]
            chosen = min(open_ones, key=lambda replica: (-replica.knows(chain), replica.load))
        elif routing == "session_sticky":
            session = (sessions or [None] * len(chains))[i]
            key = ("alone", i) if session is None else session
            chosen = pool[homes.setdefault(key, len(homes)) % replicas]
        else:
            chosen = pool[i % replicas]
        hits.append(chosen.serve(chain))
    return hits
