"""The stages in the order of the flow, ingest to sizing, and the command line.

A stage (ingest, demand, waste, efficiency, costs, sizing) is a package: a thin `assets.py` (read,
call, write, metadata) beside pure modules named after what they compute, usable without Dagster.
Log formats, table contracts and page layout do not belong here. Dagster is imported only by
`definitions.py`, `executor.py`, `checks.py`, `resources.py`, `schedules.py` and each stage's `assets.py`.
"""

import os

# Polars' allocator (jemalloc) reads this once, when Polars is imported. As Polars sets it, pages that are no longer
# used stay with the process until the machine is short of memory: a tenth of an audit's peak.
os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:500,muzzy_decay_ms:0")
