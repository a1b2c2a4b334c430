"""Binary heaps in flat arrays, compiled by numba: the least key first, the least value among equal keys.

Belongs here: push, pop, and taking a call's entries out. Does not belong here: what keys and values mean.
"""
# numba compiles these functions from their bytecode: no annotations, plain loops.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202

from pipelines.sizing.replay.compiled import compiled


@compiled
def _precedes(key, value, other_key, other_value):
    return key < other_key or (key == other_key and value < other_value)


@compiled
def push_heap(keys, values, size, key, value):
    """Add an entry; returns the new size."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if not _precedes(key, value, keys[parent], values[parent]):
            break
        keys[at], values[at] = keys[parent], values[parent]
        at = parent
    keys[at], values[at] = key, value
    return size + 1


@compiled
def pop_heap(keys, values, size):
    """Remove the first entry; returns the new size."""
    size -= 1
    _sink(keys, values, size, 0, keys[size], values[size])
    return size


@compiled
def _sink(keys, values, size, at, key, value):
    """Put an entry where it belongs at or below a place."""
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and _precedes(keys[child + 1], values[child + 1], keys[child], values[child]):
            child += 1
        if not _precedes(keys[child], values[child], key, value):
            break
        keys[at], values[at] = keys[child], values[child]
        at = child
    keys[at], values[at] = key, value


@compiled
def drop_from_heap(keys, values, size, call, kinds):
    """Take out all entries of a call (value // kinds); returns the key of its kind 0, and the new size."""
    kept = 0
    found = keys[0]
    for place in range(size):
        if values[place] // kinds != call:
            keys[kept], values[kept] = keys[place], values[place]
            kept += 1
        elif values[place] % kinds == 0:
            found = keys[place]
    for at in range(kept // 2 - 1, -1, -1):
        _sink(keys, values, kept, at, keys[at], values[at])
    return found, kept
