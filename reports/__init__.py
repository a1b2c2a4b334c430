"""Frames in; charts, pages, sheets and exports out.

Chart specifications, page templates, number formats, the audit page and its JSON, FOCUS, Excel and
CSV exports belong here. A number is shown here, never computed: what needs arithmetic on tokens,
money or hardware belongs in a stage of `pipelines`. All text that came from logs is escaped.
Nothing here imports Dagster.
"""
