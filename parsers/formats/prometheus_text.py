"""Scrapes of `/metrics` saved as text, federation and dumps: Prometheus 0.0.4 and OpenMetrics, of engines and of devices.

Belongs here: lines, scrapes and their time. Does not belong here: what a metric means (`parsers/metrics.py`),
which samples count (`parsers/samples.py`).

A sample's time is its own stamp, else that of its scrape: an instant in a line before it (a comment, the
`Date` header of `curl -i`, the output of `date`), else in a container's prefix. The last scrape of a file may
do without: the file was written then. A new scrape begins at such a line, at `# EOF`, and where a series
comes again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from parsers import metrics, values
from parsers.clock import LocalClock
from parsers.format import Context, Format, Head, TokenSemantics
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, INSTANT, Table
from parsers.samples import TIME_FROM_MTIME, labelled, sample_rows, summed_rows, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = r"^(?:[\w.-]+ +\| )?(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*) (?:std(?:out|err) [FP] )?)?"
"""What docker compose, kubectl and containerd write before a line."""
_NAME = r'^(?:([A-Za-z_:][\w:]*)|\{\s*(?:__name__\s*=\s*)?"([^"\\]+)")'
"""Bare, or in the braces: as UTF-8 names are written, and as `promtool tsdb dump` writes all."""
_LABELS = r'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}'
_SAMPLE = rf"^((?:[A-Za-z_:][\w:]*\s*)?(?:{_LABELS})?)\s*([^\s{{}}#]+)(?:\s+(-?[\d.]+(?:[eE][+-]?\d+)?))?\s*(?:#.*)?$"

_ISO = r"(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)"
_HTTP_DATE = r"(\d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d) GMT"
_DATE_COMMAND = r"([A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d) (?:UTC|GMT) (\d{4})"
_UNIX = r"^(?:#.*\s)?(1\d{9}(?:\.\d+)?|1\d{12})\b"
_DESCRIPTION = r"^#\s*(?:HELP|TYPE|UNIT)\s"
_LIKE_SAMPLE = r"^(?:[A-Za-z_:][\w:]*(?:\s*\{|\s+(?:[-+.\d]|[Nn]a[Nn]|[+-]?Inf))|\{\s*[\"_])"
_LATEST_UNIX_S = 1e11
"""Larger stamps are milliseconds, whatever the exposition's version says they are."""


@dataclass
class _Scrapes:
    """The scrape that is being read, and the series that it has had; `at` is null if it has no time."""

    number: int = 0
    at: int | None = None
    flag: str | None = None
    series: set[str] = field(default_factory=set)
    last: int = 0
    """The last scrape that has a sample."""
    untimed: list[pl.DataFrame] = field(default_factory=list)

    def begin(self, at: int | None, flag: str | None) -> None:
        self.number, self.at, self.flag = self.number + 1, at, flag
        self.series.clear()

    def place(self, rows: pl.DataFrame) -> Iterator[tuple[int, int | None, str | None]]:
        """Number, time (us) and flag of the scrape that each of these lines belongs to."""
        columns = ("series", "is_end", "marked", "marked_flag", "prefixed")
        for series, is_end, marked, flag, prefixed in rows.select(columns).iter_rows():
            if is_end or marked is not None:
                self.begin(marked, flag)
            elif series is not None:
                if series in self.series:
                    self.begin(None, None)
                if not self.series and self.at is None:
                    self.at = prefixed
                self.series.add(series)
                self.last = self.number
            yield self.number, self.at, self.flag


def _recognise(head: Head, table: Table) -> bool:
    """Most lines are comments or samples, and the first known metric is of the table."""
    lines = [re.sub(_PREFIX, "", line).strip() for line in head.lines]
    samples = [line for line in lines if re.match(_LIKE_SAMPLE, line)]
    comments = sum(line.startswith("#") for line in lines)
    names = (found[1] or found[2] for line in samples if (found := re.match(_NAME, line)))
    return 2 * (len(samples) + comments) > len(lines) and table_of(names) == table.name


def _map(frame: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    scrapes: _Scrapes = context.carried.setdefault("scrapes", _Scrapes())
    lines = _lines(frame, table, context)
    placed = lines.with_columns(
        pl.DataFrame(
            list(scrapes.place(lines)),
            schema={"scrape": pl.Int64, "scraped": pl.Int64, "scrape_flag": pl.String},
            orient="row",
        )
    )
    samples = _samples(placed.filter("is_sample"), table, context)
    timeless = pl.col("stamp").is_null() & pl.col("scraped").is_null()
    scrapes.untimed.append(samples.filter(timeless))
    rows = sample_rows(samples.filter(~timeless), table, context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _finish(table: Table, context: Context) -> pl.DataFrame:
    """Rows of the last scrape if only the file says when it was; rejects of earlier ones of which nothing does."""
    scrapes: _Scrapes = context.carried.setdefault("scrapes", _Scrapes())
    untimed = [frame for frame in scrapes.untimed if not frame.is_empty()]
    if not untimed:
        return summed_rows(table, context)
    held = pl.concat(untimed)
    is_last = (pl.col("scrape") == scrapes.last) & pl.lit(context.modified_at is not None)
    last = held.filter(is_last).with_columns(
        at=pl.lit(context.modified_at, INSTANT), stamp_flag=pl.lit(TIME_FROM_MTIME)
    )
    rows = sample_rows(last, table, context)
    fault = "nothing says when the scrape was: write a line such as # 2026-03-02T00:00:00Z before each"
    refused = held.filter(~is_last).select("source_line", _reject=pl.lit(fault), _other=pl.lit(value=False))
    sums = summed_rows(table, context)
    of_sums = pl.col("source_line").is_in(sums["source_line"].implode())
    return pl.concat([rows.filter(~of_sums), sums, refused], how="diagonal_relaxed")


def _lines(frame: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Samples of known metrics, and the lines that end a scrape or say when the next one was."""
    text = pl.col("line").str.strip_chars_start("\ufeff")
    name = pl.col("text").str.extract_groups(_NAME).struct
    known = {name for name, fills in metrics.tables_by_name().items() if fills == table.name}
    split = frame.select(
        "source_line",
        prefix=text.str.extract(_PREFIX),
        text=text.str.replace(_PREFIX, "").str.strip_chars(),
    ).with_columns(name=pl.coalesce(name.field("1"), name.field("2")))
    clock = LocalClock.of(context)
    # Most lines are of metrics that nobody reads: they are looked at no further.
    chosen = (
        split.with_columns(is_sample=pl.col("name").is_in(list(known)).fill_null(value=False))
        .filter(
            pl.col("is_sample")
            | ~(pl.col("text").str.contains(_DESCRIPTION) | pl.col("text").str.contains(_LIKE_SAMPLE))
        )
        .with_columns(
            is_end=pl.col("text").str.contains(r"^#\s*EOF"), remark=pl.when(~pl.col("is_sample")).then("text")
        )
    )
    iso = values.instant(
        pl.col("remark").str.extract(_ISO), "time", unit="iso", zone=clock.zone, zone_assumed=clock.assumed
    )
    prefixed = values.instant(pl.col("prefix"), "time", unit="iso")
    moments = chosen.with_columns(iso=iso.value, prefixed=prefixed.value.dt.timestamp("us"))
    flag = iso.flag(pl.col("iso")) if iso.flag else pl.lit(None, pl.String)
    fields = pl.col("text").str.extract_groups(_SAMPLE).struct
    return moments.with_columns(
        marked=pl.coalesce("iso", *_other_moments(pl.col("remark"))).dt.timestamp("us"),
        marked_flag=flag,
        **{
            column: pl.when("is_sample").then(fields.field(str(place)))
            for place, column in enumerate(("series", "value", "stamp"), 1)
        },
    ).filter(pl.col("is_sample") | pl.col("is_end") | pl.col("marked").is_not_null())


def _other_moments(remark: pl.Expr) -> Iterator[pl.Expr]:
    """Instants as HTTP and `date` write them, and unix seconds or milliseconds."""
    by_date = remark.str.extract_groups(_DATE_COMMAND).struct
    spelled = pl.concat_str(by_date.field("1").str.replace_all(r" +", " "), by_date.field("2"), separator=" ")
    for text, pattern in (
        (remark.str.extract(_HTTP_DATE), "%d %b %Y %H:%M:%S"),
        (spelled, "%b %d %H:%M:%S %Y"),
    ):
        yield text.str.to_datetime(pattern, time_unit="us", strict=False).cast(INSTANT)
    yield _stamped(remark.str.extract(_UNIX))


def _stamped(text: pl.Expr) -> pl.Expr:
    number = text.cast(pl.Float64, strict=False)
    seconds = pl.when(number > _LATEST_UNIX_S).then(number / 1e3).otherwise(number)
    return values.instant(seconds.cast(pl.String), "time", unit="s").value


def _samples(placed: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Samples as `sample_rows` wants them."""
    own = _stamped(pl.col("stamp"))
    return labelled(placed, table, context).with_columns(
        at=pl.when(pl.col("stamp").is_null()).then(pl.col("scraped").cast(INSTANT)).otherwise(own),
        stamp_flag=pl.when(pl.col("stamp").is_null()).then("scrape_flag"),
        _fault=pl.when(pl.col("series").is_null()).then(
            pl.lit("the line is no sample: it is cut or damaged")
        ),
    )


def _declared(table: Table, **fields: str) -> Format:
    return Format(
        target=table,
        container="text",
        recognise=lambda head: _recognise(head, table),
        map=lambda frame, context: _map(frame, table, context),
        finish=lambda context: _finish(table, context),
        # Where a scrape has no time, the file's takes its place.
        semantics=TokenSemantics(clock="local"),
        traps=(
            "A saved scrape has no time: see that a line before each one, or a comment, names it.",
            "Counters restart at zero with the process; what came after the last scrape is lost.",
            "A file is read for engines or for devices, whichever its first known metric belongs to.",
            "Engines in files without an instance label are told apart by the files' names, dates left out.",
            *(metrics.ENGINE_TRAPS if table is ENGINE_SAMPLES else metrics.DEVICE_TRAPS),
        ),
        **fields,  # type: ignore[arg-type]
    )


ENGINES = _declared(
    ENGINE_SAMPLES,
    name="prometheus_text",
    title="Prometheus and OpenMetrics text: inference engines",
    written_by="/metrics of vLLM, SGLang, TGI, llama.cpp, LMDeploy, TensorRT-LLM, Triton, MindIE; promtool tsdb dump",
    recognised_by="lines of comments and samples, with a metric of an engine as the first known one",
)
DEVICES = _declared(
    DEVICE_SAMPLES,
    name="prometheus_text_devices",
    title="Prometheus and OpenMetrics text: accelerators and meters",
    written_by="dcgm-exporter, nvidia_gpu_exporter, AMD's device-metrics-exporter, npu-exporter, node_exporter (RAPL), "
    "Kepler, Scaphandre, ipmi_exporter",
    recognised_by="lines of comments and samples, with a metric of a device as the first known one",
)
