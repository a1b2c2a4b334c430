"""Where rows are kept: facts as Parquet by UTC day, marts in one DuckDB file, and every table's contract.

Table declarations, the SQL of the marts and dated reference data (models, accelerators, prices,
caching rules) belong here, with the code that reads and writes them. Parsing a log, deciding when
something runs and showing a number do not. Of `parsers` only the record types and errors are known;
Dagster is not known at all.
"""
