"""The stages in the order of the flow, ingest to sizing, and the command line.

A stage (ingest, demand, waste, efficiency, costs, sizing) is a package: a thin `assets.py` (read,
call, write, metadata) beside pure modules named after what they compute, usable without Dagster.
Log formats, table contracts and page layout do not belong here. Dagster is imported only by
`definitions.py`, `checks.py`, `resources.py`, `schedules.py` and each stage's `assets.py`.
"""
