"""Parsing one format of each family against bare DuckDB, on inputs made of the formats' own cases.

An input repeats the sound records of one case; times and ids differ from copy to copy. Printed are the MB/s (wall
clock, fastest round) of two steps, each in a process of its own, in turn:
- bare: DuckDB alone writes the same fields of the same file as Parquet; of text, the lines that hold one literal;
- parse: the file is laid down, parsed by its format and written as Parquet parts.
The ratio is that of their CPU times, which a busy machine changes least. Exits with 1 if a ratio or the memory of a parse
is over its bound.

Usage: bench_formats.py [FORMAT ...] [--mb N] [--rounds N] [--quick]. `--quick` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "parsers" / "cases"
WRITTEN = datetime(2026, 12, 31, tzinfo=UTC)
MEMORY_BOUND_GB = 1.5
QUICK_MB = 2
STEP_S = 60
STRETCH = 500


@dataclass(frozen=True)
class Family:
    """A format that stands for others like it, and the case that its input is made of.

    `bound` is on the ratio of CPU times; `literal` is what bare DuckDB looks for in a line of text. Of a document,
    `stretched` (a pattern) occurs STRETCH times in a row, and `around` puts the document around what the format reads.
    """

    kind: str
    name: str
    case: str
    bound: float
    literal: str = ""
    stretched: str = ""
    around: Callable[[Any], Any] = lambda structure: structure


FAMILIES = (
    Family("gateway, JSON lines", "litellm_payload", "prefix_cache", 4),
    Family("gateway, JSON lines", "envoy_ai_gateway", "documented_keys", 10),
    Family("gateway in docker", "higress_ai_statistics_container_log", "docker_json_file", 40, "ai_log"),
    Family("table, CSV", "litellm_spend_logs_csv", "table_dump", 8),
    Family("nested JSON", "otlp_spans", "new_names", 6),
    Family("nested JSON", "langfuse_observations", "nested_generations", 12),
    Family("transcript", "claude_code_transcript", "blocks", 7),
    Family("bodies", "openai_usage", "chat_completions", 12),
    Family("bodies", "anthropic_messages", "bodies", 10),
    Family(
        "streams",
        "openai_chat_stream",
        "captures",
        30,
        "data: {",
        stretched=r'data: .*"content": "not kept"\}, "finish_reason": null.*\n\n',
    ),
    Family("engine, text", "vllm_log", "docker_two_engines", 25, "Avg prompt throughput: "),
    Family("engine, text", "ollama_log", "llama_server_of_2026", 55, "[GIN] "),
    Family("engine, text", "tgi_log", "requests", 40, "Success"),
    Family("access log, text", "nginx_access_log", "combined", 20, "POST"),
    Family("metrics, text", "prometheus_text", "kubectl_stamps", 35, "vllm_"),
    Family(
        "metrics, JSON",
        "prometheus_query_range",
        "pieces_with_repeated_edge",
        8,
        stretched=r'\[\d{10}, "\d+"\], ',
        around=lambda series: {"data": {"result": [series]}},
    ),
    Family("meter, text", "nvidia_smi_csv", "units_in_cells", 28, "GPU-"),
    Family("meter, text", "nvidia_smi_dmon", "with_date", 42, "2026"),
    Family("public trace, CSV", "azure_llm_trace", "release_2024", 12),
    Family("public trace, JSON", "mooncake_trace", "shared_prefix", 8),
)

_TIMES = {
    "iso": (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "%Y-%m-%d", 10),
    "slashes": (r"\d{4}/\d\d/\d\d(?: - | )\d\d:\d\d:\d\d", "%Y/%m/%d", 10),
    "access": (r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d", "%d/%b/%Y", 11),
    "dmon": (r"\b\d{8} +\d\d:\d\d:\d\d", "%Y%m%d", 8),
    "yearless": (r"\b\d\d-\d\d \d\d:\d\d:\d\d", "%m-%d", 5),
}
"""How logs write times: what they look like, the form of the day and its length. The time of day is at the end."""
_NAMES = r"id|uuid|parentUuid|(?:litellm_call|request|x-request|trace|span)[_-]id|(?:trace|span|request|parent\w+)Id"
_VARIED = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, (pattern, _, _) in _TIMES.items())
    + r"|(?P<unix>(?<![\d.])1[67]\d{8}(?=\d{0,9}\b))"
    r'|(?<="timestamp": )(?P<millis>\d+)|(?<="hash_ids": \[)(?P<blocks>[\d, ]+)'
    rf'|"(?:{_NAMES})": ?"(?P<id>[^"]+)|^(?P<cell>chatcmpl-\d+)',
    re.MULTILINE,
)
Part = str | Callable[[int, int], str]
"""What every copy has alike, or what is made of the copy's number and of the moment, in steps of STEP_S."""


def varied(text: str) -> list[Part]:
    """A text in parts: those that all its copies have alike, and those that the number of the copy changes."""
    parts: list[Part] = []
    at = 0
    for found in _VARIED.finditer(text):
        kind = str(found.lastgroup)
        parts += text[at : found.start(kind)], _changing(kind, found[kind])
        at = found.end(kind)
    return [*parts, text[at:]]


def _changing(kind: str, first: str) -> Callable[[int, int], str]:
    match kind:
        case "unix":
            unit = 10 ** (len(first) - 10)
            return lambda _, moment: str(int(first) + moment * STEP_S * unit)
        case "millis":
            return lambda _, moment: str(int(first) + moment * STEP_S * 1000)
        case "blocks":
            ids = [int(text) for text in first.split(",")]
            return lambda number, _: ", ".join(str(each + number * len(ids)) for each in ids)
        case "id" | "cell" if re.fullmatch(r"(?:[0-9a-f]{16}){1,2}", first):
            return lambda number, _: f"{number:07x}{first[7:]}"
        case "id" | "cell":
            return lambda number, _: f"{first}-{number:x}"
    _, day, length = _TIMES[kind]
    year = "" if "%Y" in day else "%Y "
    began = datetime.strptime(  # noqa: DTZ007 - a wall clock, written as it was read
        (year and "2026 ") + first[:length] + first[-8:], f"{year}{day}%H:%M:%S"
    )
    form = f"{day}{first[length:-8]}%H:%M:%S"
    return lambda _, moment: (began + timedelta(seconds=moment * STEP_S)).strftime(form)


def _copy(parts: list[Part], number: int, moment: int) -> str:
    return "".join(part if isinstance(part, str) else part(number, moment) for part in parts)


def _stretched(text: str, pattern: str) -> list[Part]:
    """As `varied`, where a copy holds what the pattern finds STRETCH times in a row, moment by moment."""
    parts: list[Part] = []
    at = 0
    for found in re.finditer(pattern, text):
        parts += *varied(text[at : found.start()]), _repeated(varied(found[0]))
        at = found.end()
    return [*parts, *varied(text[at:])]


def _repeated(parts: list[Part]) -> Part:
    return lambda number, moment: "".join(_copy(parts, number, moment + n) for n in range(STRETCH))


def write_input(family: Family, path: Path, size_bytes: int) -> None:
    """Write the input of a family, the same one every time; records that its case rejects are left out."""
    folder = CASES / family.name / family.case
    case = next(folder.glob("input.*"))
    rejects = (folder / "rejects.jsonl").read_text(encoding="utf-8").splitlines()
    broken = {json.loads(line)["source_line"] for line in rejects}
    lines = case.read_text(encoding="utf-8").splitlines(keepends=True)
    sound = [line for number, line in enumerate(lines, 1) if number not in broken]
    header = sound.pop(0) if case.suffix == ".csv" else ""
    text = "".join(sound)
    parts = _stretched(text, family.stretched) if family.stretched else varied(text)
    step = STRETCH if family.stretched else 1
    number, size = 0, 0
    with path.open("w", encoding="utf-8") as out:
        out.write(header)
        while size < size_bytes:
            size += out.write(_copy(parts, number, number * step))
            number += 1


def bare(family: Family, path: Path, out: Path) -> None:
    """What DuckDB needs for the same fields, with nothing done to them."""
    import duckdb

    from parsers.readers import duckdb_structure, literal, quoted
    from parsers.registry import load

    fmt = load(family.name)
    file = literal(str(path))
    if fmt.container == "text":
        sql = (
            f"SELECT * FROM read_csv({file}, columns = {{'line': 'VARCHAR'}}, auto_detect = false, header = false, "
            "delim = '\x01', quote = '', escape = '', strict_mode = false) "
            f"WHERE regexp_matches(line, {literal(re.escape(family.literal))})"
        )
    elif fmt.container == "csv":
        with path.open(encoding="utf-8") as stream:
            names = stream.readline().rstrip("\n").split(",")
        wanted = [quoted(name) for name in names if not fmt.structure or name in fmt.structure]
        sql = f"SELECT {', '.join(wanted)} FROM read_csv({file}, all_varchar = true)"
    else:
        structure = family.around(fmt.structure)
        columns = ", ".join(f"{literal(k)}: {literal(duckdb_structure(v))}" for k, v in structure.items())
        shape = "newline_delimited" if fmt.container == "json_lines" else "unstructured"
        sql = f"SELECT * FROM read_json({file}, format = '{shape}', columns = {{{columns}}}, ignore_errors = true)"
    duckdb.sql(f"COPY ({sql}) TO {literal(str(out / 'bare.parquet'))} (FORMAT parquet, COMPRESSION zstd)")


def parse(family: Family, path: Path, out: Path) -> None:
    """What landing does with one file, without the warehouse around it."""
    from parsers.format import Context
    from parsers.hashing import PromptHasher
    from parsers.parse import parse as chunks
    from parsers.registry import load
    from parsers.sources import find_sources, lay_down, read_head

    source = find_sources([path])[0]
    context = Context(source.name, PromptHasher(b"bench"), WRITTEN, {}, read_head(source).text)
    rows = 0
    for number, chunk in enumerate(chunks(source, load(family.name), lay_down(source, out), context, out)):
        rows += chunk.rows.height
        chunk.rows.write_parquet(out / f"part-{number:05d}.parquet", compression="zstd", compression_level=1)
    if not rows:
        sys.exit(f"{family.name} found no rows")


STEPS = {"bare": bare, "parse": parse}


@dataclass(frozen=True)
class Cost:
    """What a step took."""

    wall_s: float
    cpu_s: float
    peak_gb: float

    def best(self, other: Cost) -> Cost:
        """The least time of both, and the most memory."""
        return Cost(
            min(self.wall_s, other.wall_s),
            min(self.cpu_s, other.cpu_s),
            max(self.peak_gb, other.peak_gb),
        )


def _measured(step: str, family: Family, path: Path) -> Cost:
    """Do a step in this process. Imports and what starts once are not counted: a small file is read first."""
    small = path.with_name("small" + path.suffix)
    write_input(family, small, 1)
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as first,
        tempfile.TemporaryDirectory(dir=path.parent) as out,
    ):
        STEPS[step](family, small, Path(first))
        wall, cpu = time.perf_counter(), time.process_time()
        STEPS[step](family, path, Path(out))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def _run(step: str, family: Family, path: Path) -> Cost:
    command = [sys.executable, "-W", "ignore", __file__, family.name, "--step", step, "--input", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603 - this very file
    if done.returncode:
        sys.exit(f"{step} of {family.name} failed with status {done.returncode}")
    return Cost(**json.loads(done.stdout))


def _compare(families: list[Family], size_bytes: int, rounds: int, *, bounded: bool) -> int:
    print(
        f"{'family':24}{'format':38}{'bare MB/s':>10}{'parse MB/s':>11}{'CPU ratio':>10}{'bound':>6}{'peak GB':>8}"
    )
    failed = False
    for family in families:
        with tempfile.TemporaryDirectory(prefix="tokenworks-bench-") as folder:
            path = Path(folder) / f"input{next((CASES / family.name / family.case).glob('input.*')).suffix}"
            write_input(family, path, size_bytes)
            mb = path.stat().st_size / 1e6
            best: dict[str, Cost] = {}
            for _ in range(rounds):
                for step in STEPS:
                    cost = _run(step, family, path)
                    best[step] = cost.best(best.get(step, cost))
        cost = best["parse"]
        ratio = cost.cpu_s / best["bare"].cpu_s
        is_over = bounded and (ratio > family.bound or cost.peak_gb > MEMORY_BOUND_GB)
        failed |= is_over
        print(
            f"{family.kind:24}{family.name:38}{mb / best['bare'].wall_s:10.0f}{mb / cost.wall_s:11.1f}{ratio:10.1f}"
            f"{family.bound:6.0f}{cost.peak_gb:8.2f}{'  over its bound' if is_over else ''}",
            flush=True,
        )
    return int(failed)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = {family.name: family for family in FAMILIES}
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="only these; else all")
    parser.add_argument("--mb", type=int, default=80, help="size of an input")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MB} MB, one round, no bounds")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.formats) - names.keys():
        parser.error(f"not measured: {', '.join(sorted(unknown))}; measured are {', '.join(names)}")
    sys.path.insert(0, str(ROOT))
    if given.step:
        cost = _measured(given.step, names[given.formats[0]], given.input)
        print(json.dumps(vars(cost)))
        return 0
    mb, rounds = (QUICK_MB, 1) if given.quick else (given.mb, given.rounds)
    chosen = [names[name] for name in given.formats] or list(FAMILIES)
    return _compare(chosen, mb * 1_000_000, rounds, bounded=not given.quick)


if __name__ == "__main__":
    sys.exit(main())
