"""The record tables that parsers emit, and the classes that declare any table.

Belongs here: `Column`, `Table` and the declarations of `requests`, `usage_buckets`, `engine_samples`,
`device_samples`, `rejects` and `files`. From one declaration come the Polars schema, the DuckDB DDL, the
structural check and the reference page. Does not belong here: marts (`warehouse/tables.py`), reading
(`parsers/readers.py`), arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars.datatypes import DataTypeClass

INSTANT = pl.Datetime("us", "UTC")
MONEY = pl.Decimal(38, 12)
TEXT = pl.String
COUNT = pl.Int64
REAL = pl.Float64
_INSTANTS = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2286, 1, 1, tzinfo=UTC))
"""No log was written outside of these years; arithmetic on what lies far outside overflows."""

_DUCKDB_TYPES: dict[str, str] = {
    "String": "VARCHAR",
    "Int16": "SMALLINT",
    "Int32": "INTEGER",
    "Int64": "BIGINT",
    "UInt64": "UBIGINT",
    "Float64": "DOUBLE",
    "Boolean": "BOOLEAN",
    "Date": "DATE",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name carries the unit (`_ms _s _tokens _w _j _usd _bytes _ratio`, `_at`, `_day`).

    `minimum`, `maximum` and `allowed` are rules that a non-null value keeps; `nullable=False` forbids null.
    Null means unknown; zero means measured zero.
    """

    name: str
    dtype: pl.DataType | type[pl.DataType]
    description: str
    unit: str | None = None
    nullable: bool = True
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] | None = None

    @property
    def duckdb_type(self) -> str:
        """The DuckDB type that holds this column without loss."""
        return duckdb_type(self.dtype)

    def broken(self) -> dict[str, pl.Expr]:
        """Boolean expressions, one per rule, true where a row breaks the rule."""
        value = pl.col(self.name)
        rules: dict[str, pl.Expr] = {}
        if not self.nullable:
            rules[f"{self.name} is missing"] = value.is_null()
        if self.minimum is not None:
            rules[f"{self.name} is below {self.minimum:g}"] = value < self.minimum
        if self.maximum is not None:
            rules[f"{self.name} is above {self.maximum:g}"] = value > self.maximum
        if self.dtype == INSTANT:
            rules[f"{self.name} is out of range"] = ~value.is_between(*_INSTANTS)
        if self.allowed is not None:
            rules[f"{self.name} is none of {', '.join(self.allowed)}"] = ~value.is_in(self.allowed)
        return rules


def duckdb_type(dtype: DataTypeClass | pl.DataType) -> str:
    """Translate a Polars type of the contract to DuckDB's name for it.

    Raises:
        KeyError: the type is not one that the contract uses.

    """
    if isinstance(dtype, pl.List):
        return f"{duckdb_type(dtype.inner)}[]"
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMPTZ"
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision},{dtype.scale})"
    return _DUCKDB_TYPES[str(dtype)]


@dataclass(frozen=True)
class Table:
    """A table of the contract: what a row is (`grain`), what identifies it (`key`), and its columns."""

    name: str
    description: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        """Refuse a declaration that names a column twice or keys on an undeclared one."""
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        unknown = sorted(set(self.key) - set(names))
        if twice or unknown:
            msg = f"table {self.name}: declared twice: {twice}; key columns not declared: {unknown}"
            raise ValueError(msg)

    @cached_property
    def schema(self) -> pl.Schema:
        """Names and Polars types, in the declared order."""
        return pl.Schema({column.name: column.dtype for column in self.columns})

    @cached_property
    def rules(self) -> dict[str, dict[str, pl.Expr]]:
        """By column, what a row may break: see `Column.broken`."""
        return {column.name: column.broken() for column in self.columns}

    @property
    def names(self) -> list[str]:
        """Column names in the declared order."""
        return [column.name for column in self.columns]

    def __getitem__(self, name: str) -> Column:
        """The declaration of one column."""
        return next(column for column in self.columns if column.name == name)

    def ddl(self, table: str | None = None) -> str:
        """`CREATE TABLE` for DuckDB, NOT NULL included."""
        lines = [
            f'  "{column.name}" {column.duckdb_type}{"" if column.nullable else " NOT NULL"}'
            for column in self.columns
        ]
        return f'CREATE TABLE "{table or self.name}" (\n' + ",\n".join(lines) + "\n)"

    def empty(self) -> pl.DataFrame:
        """A frame of this table without rows."""
        return pl.DataFrame(schema=self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Cast to the declared types and order; columns the frame lacks become null, others are dropped.

        A value that its declared type can't hold raises: parsers turn such values into rejects before.
        """
        have = set(frame.columns)
        return frame.select(
            (pl.col(column.name) if column.name in have else pl.lit(None))
            .cast(column.dtype)
            .alias(column.name)
            for column in self.columns
        )

    def problems(self, frame: pl.DataFrame) -> dict[str, int]:
        """Count the rows that break each declared rule; only broken rules are returned."""
        rules = {text: rule for broken in self.rules.values() for text, rule in broken.items()}
        if self.key:
            rules[f"key ({', '.join(self.key)}) is not unique"] = pl.struct(self.key).is_duplicated()
        if frame.is_empty() or not rules:
            return {}
        counts = frame.select(
            rule.fill_null(value=False).sum().alias(text) for text, rule in rules.items()
        ).row(0)
        return {text: int(count) for text, count in zip(rules, counts, strict=True) if count}


def _text(name: str, description: str, **rules: object) -> Column:
    return Column(name, TEXT, description, **rules)  # type: ignore[arg-type]


def _tokens(name: str, description: str) -> Column:
    return Column(name, COUNT, description, unit="tokens", minimum=0)


def _columns(*groups: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(column for group in groups for column in group)


STATUSES = ("ok", "error", "cancelled")
SERVED_STATUSES = ("ok", "cancelled")
"""Statuses of a call that an engine or a provider worked on and that the client got something from."""
USAGE_ORIGINS = ("reported", "estimated", "missing")
OPERATIONS = (
    *("chat", "completion", "responses", "embedding", "rerank"),
    *("image", "audio", "moderation", "batch", "other"),
)

_ORIGIN = (
    _text("source_format", "Name of the format that read the row.", nullable=False),
    _text("source_file", "Path of the file as it was given, archive member after '!'.", nullable=False),
    Column("source_line", COUNT, "Line (record) of the file, counted from 1.", nullable=False, minimum=1),
)

REQUESTS = Table(
    "requests",
    "Every upstream call that was made, billed or not.",
    "one row per upstream call",
    ("source_file", "source_line"),
    _columns(
        (
            _text("request_id", "Identifier of this one call, as the source names it."),
            _text(
                "record_key",
                "Identity of the record in the system that wrote it. Rows that share it are one record seen "
                "twice (overlapping exports, two exports of one gateway) and only one is kept.",
            ),
            _text("call_id", "Identifier of the client's call; its attempts (retries, fallbacks) share it."),
        ),
        _ORIGIN,
        (
            _text("trace_id", "Trace that the call belongs to."),
            _text("session_id", "Conversation or agent session that the call belongs to."),
            _text("parent_request_id", "Call that caused this one."),
            Column("attempt", pl.Int32, "1 for the first attempt of a call, 2 for the next.", minimum=1),
            Column("started_at", INSTANT, "When the call arrived.", nullable=False),
            Column("first_token_at", INSTANT, "When the first output token was sent; null unless streamed."),
            Column("ended_at", INSTANT, "When the call ended."),
            Column("queue_ms", REAL, "Time waited before work began.", unit="ms", minimum=0),
            Column(
                "ttft_ms", REAL, "Time to first token; null unless it was measured.", unit="ms", minimum=0
            ),
            Column("duration_ms", REAL, "Time from arrival to end.", unit="ms", minimum=0),
            _text("organization", "Organisation that pays."),
            _text("team", "Team that pays."),
            _text("project", "Project or application."),
            _text("user", "Internal user."),
            _text("end_user", "Customer on whose behalf the call was made."),
            _text("api_key_hash", "Hash of the key that was used; never the key."),
            _text("api_key_alias", "Name that the gateway's operator gave the key."),
            Column("tags", pl.List(TEXT), "Tags as logged."),
            _text("gateway", "Gateway product that logged the call."),
            _text("provider", "Vendor or engine that answered."),
            _text("model_requested", "Model name the client asked for."),
            _text("model_served", "Model name that answered."),
            _text("operation", "Kind of call.", allowed=OPERATIONS),
            _text("endpoint", "Route or address of the upstream, without credentials and query."),
            Column("stream", pl.Boolean, "Whether the answer was streamed."),
            _text("service_tier", "Service tier as logged (default, priority, flex, batch)."),
            _text("instance", "Deployment or engine instance that answered."),
            _text("region", "Region that answered."),
        ),
        (
            _tokens("input_tokens", "All prompt tokens, cached ones included."),
            _tokens("cache_read_tokens", "Part of the input read from the provider's prefix cache."),
            _tokens(
                "cache_write_5m_tokens",
                "Part of the input written to a cache of 5 minutes (or unstated) life.",
            ),
            _tokens("cache_write_1h_tokens", "Part of the input written to a cache of one hour life."),
            _tokens("output_tokens", "All generated tokens, reasoning included."),
            _tokens("reasoning_tokens", "Part of the output spent on reasoning."),
            _tokens("audio_input_tokens", "Part of the input that is audio."),
            _tokens("audio_output_tokens", "Part of the output that is audio."),
            _tokens("image_input_tokens", "Part of the input that is images."),
            _tokens("image_output_tokens", "Part of the output that is images."),
            _tokens("max_output_tokens", "Limit on the output that the client asked for."),
        ),
        (
            _text("status", "Outcome.", nullable=False, allowed=STATUSES),
            Column("http_status", pl.Int32, "HTTP status of the answer.", minimum=0, maximum=999),
            _text("error_kind", "Class of the error, never its message."),
            _text("finish_reason", "Why the output ended (stop, length, tool_calls ...)."),
            _text("retry_of", "request_id of the attempt before this one."),
            Column(
                "response_cache_hit",
                pl.Boolean,
                "The gateway answered from its own cache: usage, but neither demand nor cost.",
            ),
            Column("cost_reported", MONEY, "Cost that the source states.", unit="cost_currency", minimum=0),
            _text("cost_currency", "Currency of cost_reported (ISO 4217)."),
            Column("prompt_hash", pl.UInt64, "Keyed hash of the whole prompt."),
            Column(
                "prefix_hashes",
                pl.List(pl.UInt64),
                "Keyed hash chain over the prompt's blocks: equal n-th hashes mean equal first n blocks.",
            ),
            Column(
                "prefix_token_counts",
                pl.List(COUNT),
                "Cumulative tokens at the end of each block of prefix_hashes.",
                unit="tokens",
            ),
            Column("prompt_bytes", COUNT, "Size of the prompt's text.", unit="bytes", minimum=0),
            Column(
                "tools_hash",
                pl.UInt64,
                "Keyed hash of the set of tools in the prompt, whatever their order; null if it names none.",
            ),
            Column("tools_bytes", COUNT, "Part of prompt_bytes that is tools.", unit="bytes", minimum=0),
            _text("usage_origin", "Where the token counts come from.", nullable=False, allowed=USAGE_ORIGINS),
            Column("flags", pl.List(TEXT), "What was repaired in the row, assumed for it, or looks wrong."),
        ),
    ),
)

USAGE_BUCKETS = Table(
    "usage_buckets",
    "What a source states in sums instead of calls: usage or cost of a period, by whatever it groups by. "
    "Never added to requests: both count the same work.",
    "one row per period and group that a source sums by",
    ("source_file", "source_line"),
    _columns(
        (
            _text(
                "record_key",
                "Identity of the sum: who sums, the period and the group. Of rows that share it the one of the "
                "latest file is kept: a sum grows until its period has ended and been settled.",
            ),
        ),
        _ORIGIN,
        (
            _text(
                "report",
                "Report or table that states the sum. Reports of one source may be views of the same usage.",
                nullable=False,
            ),
            Column("started_at", INSTANT, "Start of the period.", nullable=False),
            Column("ended_at", INSTANT, "End of the period, not part of it."),
            _text("gateway", "Gateway product that sums."),
            _text("provider", "Vendor that answered."),
            _text("organization", "Organisation that pays."),
            _text("team", "Team that pays."),
            _text("project", "Project, workspace or application."),
            _text("user", "Internal user."),
            _text("end_user", "Customer on whose behalf calls were made."),
            Column("tags", pl.List(TEXT), "Tag that is summed by."),
            _text("api_key_hash", "Hash of the key; never the key."),
            _text("api_key_alias", "Name or identifier of the key."),
            _text("model", "Model name."),
            _text("service_tier", "Service tier as stated."),
            _text("operation", "Kind of call.", allowed=OPERATIONS),
            _text("region", "Region that answered."),
            _text("line_item", "What a cost is for, as the source names it."),
            Column("requests", COUNT, "Calls.", minimum=0),
            Column("failed_requests", COUNT, "Part of the calls that failed.", minimum=0),
            _tokens("input_tokens", "All prompt tokens, cached ones included."),
            _tokens("cache_read_tokens", "Part of the input read from the provider's prefix cache."),
            _tokens(
                "cache_write_5m_tokens",
                "Part of the input written to a cache of 5 minutes (or unstated) life.",
            ),
            _tokens("cache_write_1h_tokens", "Part of the input written to a cache of one hour life."),
            _tokens("output_tokens", "All generated tokens, reasoning included."),
            _tokens("reasoning_tokens", "Part of the output spent on reasoning."),
            Column(
                "cost_reported", MONEY, "Cost that is stated; credits are negative.", unit="cost_currency"
            ),
            _text("cost_currency", "Currency of cost_reported (ISO 4217)."),
            Column("flags", pl.List(TEXT), "What was repaired in the row, assumed for it, or looks wrong."),
        ),
    ),
)

ENGINE_SAMPLES = Table(
    "engine_samples",
    "What an inference engine said of itself at an instant.",
    "one row per sample line or per metric sample",
    ("source_file", "source_line"),
    _columns(
        _ORIGIN,
        (
            _text("instance", "Engine instance."),
            _text("model", "Model that the instance serves."),
            Column("at", INSTANT, "When the sample was taken; end of its window.", nullable=False),
            Column(
                "window_s", REAL, "Length of the window that per-window counts cover.", unit="s", minimum=0
            ),
            Column("running", REAL, "Requests being worked on.", minimum=0),
            Column("waiting", REAL, "Requests waiting.", minimum=0),
            Column("kv_usage_ratio", REAL, "Share of the KV cache in use.", minimum=0, maximum=1),
            Column("prompt_tokens_per_s", REAL, "Prompt tokens per second over the window.", minimum=0),
            Column(
                "generation_tokens_per_s", REAL, "Generated tokens per second over the window.", minimum=0
            ),
            Column("window_prompt_tokens", REAL, "Prompt tokens in the window.", unit="tokens", minimum=0),
            Column(
                "window_generation_tokens", REAL, "Generated tokens in the window.", unit="tokens", minimum=0
            ),
            Column("prompt_tokens_total", REAL, "Counter of prompt tokens.", unit="tokens", minimum=0),
            Column(
                "cached_prompt_tokens_total", REAL, "Counter of prompt tokens read from the cache.", minimum=0
            ),
            Column("generation_tokens_total", REAL, "Counter of generated tokens.", unit="tokens", minimum=0),
            Column("requests_total", REAL, "Counter of finished requests.", minimum=0),
            Column(
                "prefix_cache_queries_total",
                REAL,
                "Counter of tokens looked up in the prefix cache.",
                minimum=0,
            ),
            Column(
                "prefix_cache_hits_total", REAL, "Counter of tokens found in the prefix cache.", minimum=0
            ),
            Column(
                "prefix_cache_hit_ratio", REAL, "Hit ratio as the engine prints it.", minimum=0, maximum=1
            ),
            Column("flops_per_gpu_total", REAL, "Counter of estimated FLOPs per accelerator.", minimum=0),
            Column(
                "read_bytes_per_gpu_total",
                REAL,
                "Counter of estimated bytes read per accelerator.",
                minimum=0,
            ),
            Column(
                "write_bytes_per_gpu_total",
                REAL,
                "Counter of estimated bytes written per accelerator.",
                minimum=0,
            ),
            Column(
                "ttft_ms", REAL, "Time to first token (statistic named in `statistic`).", unit="ms", minimum=0
            ),
            Column(
                "tpot_ms",
                REAL,
                "Time per output token (statistic named in `statistic`).",
                unit="ms",
                minimum=0,
            ),
            _text("statistic", "Statistic of ttft_ms and tpot_ms, e.g. p95."),
            Column(
                "flags", pl.List(TEXT), "What was assumed for the sample or looks wrong (clock, year, zone)."
            ),
        ),
    ),
)

DEVICE_SAMPLES = Table(
    "device_samples",
    "What an accelerator or a power meter said at an instant.",
    "one row per device and instant",
    ("source_file", "source_line"),
    _columns(
        _ORIGIN,
        (
            _text("host", "Host that the device is in."),
            _text("device", "Device: UUID where the source has it, else its index.", nullable=False),
            _text("device_name", "Product name of the device."),
            Column("at", INSTANT, "When the sample was taken.", nullable=False),
            Column("power_w", REAL, "Power drawn.", unit="W", minimum=0),
            Column("energy_j", REAL, "Counter of energy used.", unit="J", minimum=0),
            Column("power_limit_w", REAL, "Power limit in force.", unit="W", minimum=0),
            Column("utilisation_ratio", REAL, "Share of time that any kernel ran.", minimum=0, maximum=1),
            Column(
                "memory_utilisation_ratio", REAL, "Share of time that memory was busy.", minimum=0, maximum=1
            ),
            Column("memory_used_bytes", REAL, "Memory in use.", unit="bytes", minimum=0),
            Column("memory_total_bytes", REAL, "Memory present.", unit="bytes", minimum=0),
            Column(
                "tensor_active_ratio",
                REAL,
                "Share of time that tensor cores were active.",
                minimum=0,
                maximum=1,
            ),
            Column("dram_active_ratio", REAL, "Share of time that DRAM was active.", minimum=0, maximum=1),
            Column("temperature_c", REAL, "Temperature.", unit="C"),
            Column("flags", pl.List(TEXT), "What was assumed for the sample or looks wrong."),
        ),
    ),
)

REJECTS = Table(
    "rejects",
    "Lines that could not be read, with the reason.",
    "one row per rejected line",
    ("source_file", "source_line"),
    _columns(
        _ORIGIN,
        (
            Column(
                "byte_offset",
                COUNT,
                "Where the line begins in the uncompressed file; null if unknown.",
                minimum=0,
            ),
            _text("reason", "What is wrong with the line.", nullable=False),
            _text("excerpt", "At most 2 KB of the line, texts and secrets masked."),
        ),
    ),
)

FILES = Table(
    "files",
    "The manifest: every file that was read, and what came of it.",
    "one row per path",
    ("path",),
    (
        _text("path", "Path as given, archive member after '!'.", nullable=False),
        Column(
            "size_bytes", COUNT, "Size of the uncompressed content.", unit="bytes", nullable=False, minimum=0
        ),
        _text("content_sha256", "SHA-256 of the uncompressed content.", nullable=False),
        _text("format", "Name of the format; null if the file was not recognised."),
        _text("target", "Table that the format fills."),
        _text("detected_by", "Why this format was chosen."),
        _text("copy_of", "Path of the file with the same content that was read instead."),
        Column(
            "lines",
            COUNT,
            "Records in the file: lines, or elements of a document.",
            minimum=0,
            nullable=False,
        ),
        Column("rows", COUNT, "Records that became rows.", minimum=0, nullable=False),
        Column("rejects", COUNT, "Records that were rejected.", minimum=0, nullable=False),
        Column(
            "other_lines",
            COUNT,
            "Records recognised as something else (headers, banners, chatter).",
            minimum=0,
            nullable=False,
        ),
        Column("first_at", INSTANT, "Earliest instant of its rows."),
        Column("last_at", INSTANT, "Latest instant of its rows."),
        Column("ingested_at", INSTANT, "When it was read.", nullable=False),
        _text("problem", "Why the file could not be read to its end, or at all."),
    ),
)

RECORD_TABLES = (REQUESTS, USAGE_BUCKETS, ENGINE_SAMPLES, DEVICE_SAMPLES)
FACT_TABLES = (*RECORD_TABLES, REJECTS, FILES)
