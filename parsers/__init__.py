"""Log formats: text in, canonical rows and rejects out.

One format is one file in `parsers/formats/`, and the record tables that every format fills are
declared in `parsers.records`. Finding, unpacking, detecting and normalising input belong here too.
What keeps state, joins sources, prices tokens or schedules work does not, and nothing here imports
`warehouse`, `reports`, `pipelines` or Dagster.
"""
