"""The command `tokenworks`.

Belongs here: arguments, progress, what is printed, exit codes. Does not belong here: any work; heavy imports happen
inside the commands, so that `--help` is quick.

Exit codes: 0 done; 1 other error of the input, or another run holds the data folder; 2 wrong usage; 3 unknown or
ambiguous format; 4 a source can't be read; 5 fleet.toml, a mapping or an option is wrong; 6 nothing usable in the input;
7 a blocking check failed; 70 a fault of the program; 74 the results can't be written; 130 stopped by the user.

Names of files, models and teams are hostile: whatever is printed of them is one printable line, and no markup.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from _thread import interrupt_main
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, cast

import typer
from rich.console import Console
from rich.markup import escape

from parsers.errors import DISK_TROUBLE, SiteConfigError, TokenworksError, UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Format
    from pipelines.ingest.land import Landing, Reading

INTERNAL_FAULT, CANT_WRITE, INTERRUPTED = 70, 74, 130

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_SHOWN_PROBLEMS = 5
_WIDE = 400
_stderr = Console(stderr=True, highlight=False)

PathsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Log files, folders, globs or archives; - for standard input; addresses: http(s)://, s3://, gs://, az://, "
        "prometheus+http(s)://, postgresql://.",
        show_default=False,
    ),
]
PathArgument = Annotated[
    str,
    typer.Argument(
        help="One log file, folder or archive; - for standard input; or an address.", show_default=False
    ),
]
FormatOption = Annotated[
    str | None, typer.Option("--format", help="Format of the files; default: by content.")
]
MappingOption = Annotated[
    Path | None,
    typer.Option(
        "--mapping",
        help="TOML file that describes the columns of a log; files without them are read as usual.",
    ),
]
TimezoneOption = Annotated[
    str | None, typer.Option(help="Time zone of logs that name none, e.g. Europe/Berlin.")
]
YearOption = Annotated[
    int | None, typer.Option(min=1970, max=2100, help="Year of the first line of logs that name none.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="What the logs do not say: origin, instance, interval_s, block_size, timezone or year. Repeatable.",
    ),
]


def main() -> None:
    """Run the command."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    warnings.simplefilter("ignore")
    if sys.stdout is None:
        # Closed by the caller; else the next file to be opened would take its place.
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the whole run
    _end_on_interrupt()
    with _one_line_errors():
        app(prog_name="tokenworks")


def _end_on_interrupt() -> None:
    """Have Ctrl-C, a closed terminal or a service manager end the command within `_GRACE_S`, whatever is at work.

    The interpreter hears of a signal only between two of its own steps, which an import or a query may keep away for
    seconds. So one thread waits for it, and all others, which inherit the mask, never see it. To end at any moment
    loses nothing: every result is renamed into place whole. To end in good order also removes what was brought from
    a pipe or a server, which may hold prompts.
    """
    # What is ignored, as `nohup` has it, stays so.
    others = {each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) != signal.SIG_IGN}
    ending = {signal.SIGINT} | others
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    signal.signal(_WAKING, lambda *_: None)
    threading.Thread(target=_await_interrupt, args=(ending,), daemon=True).start()


_WAKING = signal.SIGUSR2
"""Ends a read that waits for a pipe or a server, so that the interrupt is heard."""


def _await_interrupt(ending: set[signal.Signals]) -> None:
    signal.sigwait(ending)
    interrupt_main()
    signal.pthread_kill(cast("int", threading.main_thread().ident), _WAKING)
    signal.sigtimedwait(ending, _GRACE_S)
    for folder in _brought:
        shutil.rmtree(folder, ignore_errors=True)
    _say_stopped()
    os._exit(INTERRUPTED)


_brought: list[Path] = []
"""Folders of what came from pipes and servers: removed also where the grace is too short to end in good order."""


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tokenworks-") as folder:
        _brought.append(Path(folder))
        yield Path(folder)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Decorates each command: an error is one line and an exit code."""
    try:
        yield
    except TokenworksError as error:
        _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        _stopped()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        is_disk = error.errno in DISK_TROUBLE
        _fail(
            f"{where}{error.strerror or error}" + (f". {_remedy(error)}" if is_disk else ""),
            CANT_WRITE if is_disk else UnreadableSourceError.exit_code,
        )
    except BaseException as error:
        if type(error).__name__ == _INTERRUPTED_IN_DAGSTER:
            _stopped()
        if not isinstance(error, Exception):
            raise
        if os.environ.get("TOKENWORKS_DEBUG"):
            raise
        if _is_disk_trouble(error):
            _fail(f"the results can't be written. {_NO_ROOM}", CANT_WRITE)
        text = f"a fault of tokenworks ({type(error).__name__})"
        _fail(f"{text}. Set TOKENWORKS_DEBUG=1 to see where, and report it.", INTERNAL_FAULT)


_INTERRUPTED_IN_DAGSTER = "DagsterExecutionInterruptedError"
"""Dagster raises this, which is no Exception, for Ctrl-C; its name does not cost its import."""
_FAULTY = (
    "The disk, or the drive behind the network, reports a fault: check it, and run the same command again."
)
_NO_ROOM = "Make room on that disk, or give an --out on another one, and run the same command again."


def _remedy(error: OSError) -> str:
    return _FAULTY if error.errno == errno.EIO else _NO_ROOM


_STOPPED = "[bold red]stopped[/]; nothing is lost: run the same command again"
_GRACE_S = 1.0
"""Time to end in good order after Ctrl-C; a second Ctrl-C cuts it short."""


_saying_stopped = threading.Lock()
_stopped_to_say = [_STOPPED]


def _stopped() -> NoReturn:
    _say_stopped()
    sys.exit(INTERRUPTED)


def _say_stopped() -> None:
    """Once, whichever comes first: the work that was interrupted, or the end of its grace."""
    with _saying_stopped:
        while _stopped_to_say:
            _say(_stopped_to_say.pop())


def _is_disk_trouble(error: BaseException) -> bool:
    """Whether an engine (DuckDB, Polars) failed because it could not write: they have errors of their own for it."""
    return any(os.strerror(code) in str(error) for code in DISK_TROUBLE)


def _fail(text: str, code: int) -> NoReturn:
    _say(f"[bold red]error:[/] {escape(_line(text))}")
    sys.exit(code)


def _say(text: str) -> None:
    """Print to standard error, as one line however long."""
    _stderr.print(text, soft_wrap=True)


def _line(text: str) -> str:
    """Text of an error as one printable line: names in it may come from hostile files, and an address hold a password."""
    from parsers.credentials import redacted

    return _printable(redacted(" ".join(text.split()), lambda _: "..."))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tokenworks {version('tokenworks')}")
        raise typer.Exit


@app.callback()
def tokenworks(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """One week of LLM logs in; what the tokens cost, where they are wasted, and what hardware must carry them, out."""


@app.command()
@_one_line_errors()
def audit(
    paths: PathsArgument,
    fleet: Annotated[
        Path | None, typer.Option(help="fleet.toml: which models run on which hardware.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and the data.")] = Path("tokenworks-out"),
    format_name: FormatOption = None,
    mapping: MappingOption = None,
    window: Annotated[
        str | None, typer.Option(help="START..END, UTC: ISO dates, both included, or instants.")
    ] = None,
    timezone: TimezoneOption = None,
    year: YearOption = None,
    settings: SetOption = None,
    title: Annotated[
        str | None, typer.Option(help="Title of the report; default: the name in fleet.toml, else the paths.")
    ] = None,
) -> None:
    """Read logs, analyse them, and write audit.html and audit.json into OUT."""
    from pipelines.fleet import Fleet, load_fleet
    from pipelines.site import Site, parse_window
    from warehouse.store import Warehouse

    problems: list[str] = []
    with _stderr.status("starting") as status:

        def on_file(landing: Landing) -> None:
            if landing.problem:
                problems.append(landing.problem)
            told = landing.problem if not landing.format else f"{landing.rows:,} rows"
            status.update(escape(_line(f"read {landing.path}: {told}")))

        site = Site(
            warehouse=Warehouse(
                out,
                window=parse_window(window) if window else None,
                on_write=lambda table: status.update(f"computed {table}"),
            ),
            sources=tuple(paths),
            fleet=load_fleet(fleet) if fleet else Fleet.default(),
            report_folder=out,
            reading=_reading(format_name, mapping, _options(timezone, year, settings)),
            fleet_path=str(fleet) if fleet else None,
            title=title or "",
            on_file=on_file,
        )
        _brought.append(site.live_folder)
        from pipelines.audit import run_audit

        report = run_audit(site)
    from reports.decision import decision_lines

    for line in decision_lines(report.decision):
        typer.echo(_line(line))
    for problem in problems[:_SHOWN_PROBLEMS]:
        _say(f"[bold yellow]warning:[/] {escape(_line(problem))}")
    if len(problems) > _SHOWN_PROBLEMS:
        _say(f"[bold yellow]warning:[/] {len(problems) - _SHOWN_PROBLEMS} more files, named in the report")
    _say(f"report: {escape(_line(str(report.html)))}  data: {escape(_line(str(report.json)))}")


def _options(timezone: str | None, year: int | None, settings: list[str] | None) -> dict[str, str]:
    """The options that are given each by its own name, and those given by `--set`."""
    from parsers.options import checked

    options: dict[str, str] = {}
    own = {name: str(given) for name, given in (("timezone", timezone), ("year", year)) if given is not None}
    for setting in settings or ():
        name, separator, value = setting.partition("=")
        if not separator or name in options | own:
            what = f"{name} is set twice" if separator else f"{setting} sets nothing"
            raise SiteConfigError(what, where="--set", remedy="Write it like instance=gpu-1, and once.")
        options[name] = value
    return checked(own, "--") | checked(options, "--set ")


def _reading(format_name: str | None, mapping: Path | None, options: dict[str, str]) -> Reading:
    import hashlib

    from parsers.mapping import load_mapping
    from parsers.registry import load
    from pipelines.ingest.land import Reading

    if format_name:
        load(format_name)
    mapped: Format | None = load_mapping(mapping) if mapping else None
    digest = hashlib.sha256(mapping.read_bytes()).hexdigest() if mapping else ""
    return Reading(format_name, mapped, digest, options)


@app.command()
@_one_line_errors()
def parse(
    file: PathArgument,
    format_name: FormatOption = None,
    mapping: MappingOption = None,
    timezone: TimezoneOption = None,
    year: YearOption = None,
    settings: SetOption = None,
) -> None:
    """Print canonical rows as JSON lines; rejects with their line numbers and the counts go to standard error.

    The lines are pure ASCII and name only what is known. Money is a string, so that no cent is lost; hashes are whole
    numbers of up to 64 bits; instants are ISO 8601 with Z.
    """
    import polars as pl

    from parsers.live import Live
    from parsers.sources import find_sources
    from pipelines.ingest.land import distinct, land_each
    from warehouse.store import Warehouse

    reading = _reading(format_name, mapping, _options(timezone, year, settings))
    lines = rows = rejects = other = unread = 0
    with _scratch() as folder:
        warehouse = Warehouse(folder)
        sources = distinct(find_sources([file], Live(folder / "live")))
        for landing in land_each(sources, warehouse, reading):
            if landing.problem:
                unread += not landing.format
                if unread == len(sources):
                    raise landing.error()
                _say(escape(_line(landing.problem)))
            for part in warehouse.parts(landing.id) if landing.id else ():
                frame = pl.read_parquet(part, glob=False).with_columns(source_file=pl.lit(landing.path))
                for row in frame.iter_rows(named=True):
                    sys.stdout.write(json.dumps(_known(row), allow_nan=False) + "\n")
            for part in warehouse.parts(landing.id, "rejects") if landing.id else ():
                for line, reason in pl.read_parquet(part, glob=False)["source_line", "reason"].iter_rows():
                    _say(escape(_line(f"{landing.path}:{line}: {reason}")))
            lines, rows = lines + landing.lines, rows + landing.rows
            rejects, other = rejects + landing.rejects, other + landing.other_lines
    sys.stdout.flush()
    _say(f"{lines:,} lines = {rows:,} rows + {rejects:,} rejects + {other:,} other")


def _known(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its unknown values, as JSON has them."""
    return {name: _plain(value) for name, value in row.items() if value is not None}


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return f"{value:f}"
        case _:
            return value


@app.command()
@_one_line_errors()
def replay(
    trace: Annotated[
        list[str],
        typer.Argument(
            help="Logs as for audit, or the data folder of an audit.",
            show_default=False,
        ),
    ],
    fleet: Annotated[
        Path | None, typer.Option(help="fleet.toml: each pool gets the calls of its models.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of a fleet: the architecture of all calls.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="The accelerator.")] = None,
    tp: Annotated[int, typer.Option(min=1, help="Accelerators per replica.")] = 1,
    replicas: Annotated[int, typer.Option(min=1, help="Replicas.")] = 1,
    precision: Annotated[
        Literal["fp16", "bf16", "fp8", "int8", "int4"] | None,
        typer.Option(help="Precision of the weights; default: as published."),
    ] = None,
    routing: Annotated[
        Literal["round_robin", "least_loaded", "prefix_aware"],
        typer.Option(help="How calls find a replica."),
    ] = "least_loaded",
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: so many clients, each with one call at a time, instead of the log's times.",
        ),
    ] = None,
    pause_s: Annotated[
        float, typer.Option(min=0, help="Closed loop: pause of a client between two calls.")
    ] = 0.0,
    window: Annotated[
        str | None, typer.Option(help="START..END, UTC: ISO dates, both included, or instants.")
    ] = None,
    warm_up_s: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Seconds replayed and not measured: before the window (default 300), else at the start (0).",
        ),
    ] = None,
    slo_ttft_ms: Annotated[
        float | None, typer.Option(min=0.001, help="TTFT that 95 % of the calls keep.")
    ] = None,
    slo_tpot_ms: Annotated[
        float | None, typer.Option(min=0.001, help="TPOT that 95 % of the calls keep.")
    ] = None,
    max_sequences: Annotated[int | None, typer.Option(min=1, help="Most sequences of a batch.")] = None,
    step_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Token budget of a step; longer prompts are prefilled in chunks."),
    ] = None,
    prefix_cache: Annotated[
        Literal["blocks", "logged", "none"] | None,
        typer.Option(
            help="Prefix hits: simulated from prefix blocks, as logged, or none; default: the first known."
        ),
    ] = None,
    prefill_replicas: Annotated[
        int, typer.Option(min=0, help="So many of the replicas do prefill only, the others decode only.")
    ] = 0,
    link_gbs: Annotated[
        float, typer.Option(min=0.001, help="GB/s at which a KV cache goes from prefill to decode.")
    ] = 50.0,
    out: Annotated[Path | None, typer.Option(help="Folder to write replay.json into.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of words.")] = False,
    format_name: FormatOption = None,
    mapping: MappingOption = None,
    timezone: TimezoneOption = None,
    year: YearOption = None,
    settings: SetOption = None,
) -> None:
    """Replay logged calls on simulated engines: TTFT, TPOT, goodput, utilisation, KV use and energy."""
    from pipelines.fleet import Fleet, Slo, load_fleet
    from pipelines.site import parse_window
    from pipelines.sizing.replay import command

    if fleet and (model or gpu):
        raise SiteConfigError("both say what to replay on", where="--fleet and --model", remedy="Give one.")
    pools = () if fleet else (command.pool_of_flags(model, gpu, tp, replicas, precision),)
    given = load_fleet(fleet) if fleet else Fleet(pools=pools)
    options = command.Options(
        routing=routing,
        clients=concurrency,
        pause_s=pause_s,
        warm_up_s=warm_up_s,
        max_sequences=max_sequences,
        step_tokens=step_tokens,
        prefix_source=prefix_cache,
        prefill_replicas=prefill_replicas,
        link_gbs=link_gbs,
    )
    slo = Slo(
        ttft_p95_ms=slo_ttft_ms or given.slo.ttft_p95_ms, tpot_p95_ms=slo_tpot_ms or given.slo.tpot_p95_ms
    )
    within = parse_window(window) if window else None
    reading = _reading(format_name, mapping, _options(timezone, year, settings))
    with _scratch() as folder, _stderr.status("replaying"):
        requests = command.requests_of(trace, reading, within, options.lead_s, folder)
        told = command.replay_fleet(requests, given, slo, options, within)
    text = json.dumps({"replays": told}, allow_nan=False, indent=1)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "replay.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
        return
    for line in (line for one in told for line in command.told_lines(one)):
        typer.echo(_printable(line))


@app.command()
@_one_line_errors()
def formats() -> None:
    """List what can be read, and how each format is recognised."""
    from rich.table import Table

    from parsers.registry import all_formats

    table = Table(box=None, header_style="bold")
    table.add_column("format", no_wrap=True)
    for heading in ("what", "fills", "recognised by"):
        table.add_column(heading, overflow="fold")
    for fmt in all_formats():
        table.add_row(fmt.name, fmt.title, fmt.target.name, fmt.recognised_by)
    # In a pipe one line each, for grep.
    Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE).print(table)
    typer.echo("Any other CSV, JSON lines or Parquet file: describe its columns with --mapping FILE.toml.")


@app.command()
@_one_line_errors()
def sniff(file: PathArgument) -> None:
    """Say what a file is, and why."""
    from parsers.detect import detect, matching, unwrapped
    from parsers.errors import UnknownFormatError
    from parsers.live import Live, shown
    from parsers.sources import find_sources, read_head

    with _scratch() as folder:
        sources = find_sources([file], Live(folder))
        unknown = 0
        for source in sources:
            try:
                head = read_head(source)
                found = detect(head if matching(head) else unwrapped(source, head)[1])
            except UnknownFormatError as error:
                if len(sources) == 1:
                    raise
                unknown += 1
                typer.echo(_line(str(error)))
            else:
                fmt = found.format
                typer.echo(_line(f"{source.name}: {fmt.name} ({fmt.title}), because it has {found.because}"))
        if unknown == len(sources):
            raise UnknownFormatError("no file is of a known format", where=shown(file))


@app.command()
@_one_line_errors()
def synth(
    out: Annotated[Path, typer.Option(help="Folder to write the example week into.", show_default=False)],
    days: Annotated[int, typer.Option(min=1, max=366, help="Days of traffic.")] = 7,
    requests: Annotated[
        int | None, typer.Option(min=1, help="About how many requests; default: about 20,000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 7,
    waste: Annotated[
        str,
        typer.Option(help="Kinds of waste to plant, with commas (`truth.json` names them); or all, or none."),
    ] = "all",
) -> None:
    """Write the example week: a small company's gateway log and GPU telemetry, and the truth that was planted."""
    from pipelines.synth.waste_kinds import kinds_of
    from pipelines.synth.week import write_week

    kinds = kinds_of(waste)
    with _stderr.status("writing the example week"):
        write_week(out, days=days, requests=requests, seed=seed, waste=kinds)
    typer.echo(f"wrote {out}; the planted truth is in {out / 'truth.json'}")


@app.command()
@_one_line_errors()
def predict(
    model: Annotated[
        str | None, typer.Option(help="Model, as in the catalogue, a log or a checkpoint.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="Accelerator, e.g. H100, b200_sxm.")] = None,
    tp: Annotated[int, typer.Option(min=1, help="Tensor parallelism: accelerators per group.")] = 1,
    pp: Annotated[int, typer.Option(min=1, help="Pipeline stages.")] = 1,
    attention_dp: Annotated[int, typer.Option(min=1, help="Groups that attention is replicated over.")] = 1,
    precision: Annotated[
        str | None,
        typer.Option(help="bf16, fp8, fp4, int8, int4 ...; default: that of the published weights."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="vllm, sglang or trtllm; default: what is common to them.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "--batch", min=1, help="Sequences in flight per replica.")
    ] = None,
    isl: Annotated[int | None, typer.Option(min=1, help="Input tokens per call.")] = None,
    osl: Annotated[int | None, typer.Option(min=1, help="Output tokens per call.")] = None,
    model_config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE", help="config.json of a model that the catalogue lacks. Repeatable."
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Table of points: columns of latency_points or energy_points."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --csv: the same rows with predictions beside.")
    ] = None,
) -> None:
    """Predict TPOT, TTFT, throughput and power of one serving point, or of each row of a table.

    Intervals hold 80 % of measured points of models that the fit had not seen (docs/decisions/0010).
    """
    from pipelines.sizing.predict_files import architectures, predict_csv, predict_point

    extra = architectures(model_config or [], model)
    if csv is not None:
        if out is None:
            raise SiteConfigError(
                "no --out is given", where="--csv", remedy="Say where the table goes: --out OUT.csv."
            )
        rows, predicted = predict_csv(csv, out, extra)
        _say(f"{predicted:,} of {rows:,} rows predicted: {escape(_line(str(out)))}")
        return
    point = {
        "model": model,
        "gpu": gpu,
        "tp": tp,
        "pp": pp,
        "attention_dp_size": attention_dp,
        "precision": precision,
        "engine": engine,
        "concurrency": concurrency,
        "isl": isl,
        "osl": osl,
    }
    for line in predict_point(point, extra):
        typer.echo(_line(line))
