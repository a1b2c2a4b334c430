"""The command: what it prints, how it exits, and that every error is one line which says what, where and what to do."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines import cli

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = Path(sys.executable).with_name("tokenworks")
HOSTILE_MODEL = (
    "</script><img src=x onerror=alert(1)>\x1b[31m\n'; DROP TABLE requests; --[bold]red[/bold]\u202e"
)


def payload(n: int, **fields) -> str:
    """One LiteLLM StandardLoggingPayload line."""
    start = 1_794_830_400 + n
    record = {
        "id": f"chatcmpl-{n}",
        "litellm_call_id": f"call-{n}",
        "call_type": "acompletion",
        "status": "success",
        "startTime": start,
        "endTime": start + 1,
        "completionStartTime": start + 0.5,
        "model": "gpt-4o",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "total_tokens": 110,
        "response_cost": 0.001,
        "hidden_params": {},
        "metadata": {"user_api_key_team_alias": "support"},
        "messages": [{"role": "user", "content": "hi"}],
    }
    return json.dumps(record | fields) + "\n"


GOOD = "".join(payload(n) for n in range(5))


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working folder with one good log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.jsonl").write_text(GOOD)
    return tmp_path


@pytest.fixture
def tokenworks(capsys, monkeypatch):
    """Run the command in this process: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tokenworks", *arguments])
        code: object = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        found = capsys.readouterr()
        assert "Traceback" not in found.out + found.err
        assert isinstance(code, int)
        return code, found.out, found.err

    return run


def is_one_line(text: str) -> bool:
    """Whether an error is one printable line that begins as errors do."""
    return text.startswith("error: ") and text.endswith("\n") and text[:-1].isprintable()


def write(name: str, data: bytes | str) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return name


# ---- help, version, lists


def test_help_and_version_are_quick_and_import_nothing_heavy(command):
    assert re.fullmatch(r"tokenworks \d+\.\d+\.\d+\n", command("--version").out)
    for arguments in ((), ("--help",), ("audit", "--help"), ("parse", "--help"), ("synth", "--help")):
        ran = command(*arguments)
        assert "Usage: tokenworks" in ran.out + ran.err
    code = "import sys, pipelines.cli; print([m for m in %r if m in sys.modules])"
    heavy = [
        "polars",
        "duckdb",
        "dagster",
        "pandas",
        "pyarrow",
        "numpy",
        "numba",
        "great_expectations",
        "altair",
        "pydantic",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code % heavy], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


def test_formats_lists_all(tokenworks):
    from parsers.registry import FORMAT_NAMES

    code, out, _ = tokenworks("formats")
    assert code == 0
    assert all(name in out for name in FORMAT_NAMES)
    assert len(out.splitlines()) == len(FORMAT_NAMES) + 2, "in a pipe each is one line"


def test_sniff_says_what_and_why(here, tokenworks):
    code, out, _ = tokenworks("sniff", "good.jsonl")
    assert code == 0
    assert out.startswith("good.jsonl: litellm_payload (LiteLLM StandardLoggingPayload), because it has ")
    write("more/readme.txt", "hello\n")
    write("more/good.jsonl", GOOD)
    code, out, _ = tokenworks("sniff", "more")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["more/good.jsonl", "more/readme.txt"]


def test_synth_writes_the_week(here, tokenworks):
    code, out, _ = tokenworks("synth", "--out", "week", "--days", "1", "--requests", "50")
    assert code == 0
    assert "truth.json" in out
    assert json.loads((here / "week" / "truth.json").read_text())


# ---- parse


def test_parse_prints_rows_rejects_and_counts(here, tokenworks):
    write("mixed.jsonl", payload(1) + "{broken\n" + "\n" + payload(2, prompt_tokens="many") + payload(3))
    code, out, err = tokenworks("parse", "mixed.jsonl")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["source_line"] for row in rows] == [1, 5]
    assert [row["request_id"] for row in rows] == ["chatcmpl-1", "chatcmpl-3"]
    lines = err.splitlines()
    assert lines[0].startswith("mixed.jsonl:2: the line is not JSON")
    assert lines[1].startswith("mixed.jsonl:4: prompt_tokens is not a whole number")
    assert lines[-1] == "5 lines = 2 rows + 2 rejects + 1 other"


def test_a_mapping_leaves_the_other_files_of_a_folder_to_their_formats(here, tokenworks):
    columns = '[columns]\nstarted_at = "time"\ninput_tokens = "tokens"\n'
    write("map.toml", 'format = "csv"\n' + columns)
    write("logs/own.csv", "time,tokens\n2026-11-16T12:00:00Z,7\n")
    write("logs/good.jsonl", GOOD)
    code, out, _ = tokenworks("parse", "logs", "--mapping", "map.toml")
    assert code == 0
    formats = [json.loads(line)["source_format"] for line in out.splitlines()]
    assert sorted(formats) == ["litellm_payload"] * 5 + ["mapping_map"]
    write("logs/own.csv", "when,tokens\n2026-11-16T12:00:00Z,7\n")
    code, _, err = tokenworks("parse", "logs", "--mapping", "map.toml")
    assert (code, "has no column 'time'" in err) == (5, True)


def test_parse_keeps_every_digit_and_is_plain_ascii(here, tokenworks):
    """Money is a string, hashes are whole 64-bit numbers, instants say Z; nothing can steer a terminal."""
    write("x.jsonl", payload(1, response_cost=0.000000123456, model=HOSTILE_MODEL, end_user="Zoë"))
    _, out, _ = tokenworks("parse", "x.jsonl")
    assert out.isascii()
    assert out[:-1].isprintable()
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert row["cost_reported"] == "0.000000123456"
    assert isinstance(row["prompt_hash"], int)
    assert row["started_at"] == "2026-11-16T12:00:01Z"
    assert (row["model_served"], row["end_user"]) == (HOSTILE_MODEL, "Zoë")
    assert None not in row.values()


def test_parse_ends_quietly_when_nobody_listens(here):
    write("many.jsonl", GOOD * 2000)
    reader = f"{PROGRAM} parse many.jsonl | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", reader], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_a_closed_standard_output_is_no_fault(here):
    """What is opened next would else be its file descriptor."""
    done = subprocess.run(
        ["sh", "-c", '"$0" parse good.jsonl >&-', PROGRAM], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "5 lines = 5 rows + 0 rejects + 0 other\n")


def test_files_of_which_none_can_be_read_are_an_error(here, tokenworks):
    (here / "none").mkdir()
    for name in ("a", "b"):
        (here / "none" / name).write_text("hm\n")
    code, out, err = tokenworks("parse", "none")
    assert (code, out) == (3, "")
    assert [line.partition(": no format")[0] for line in err.splitlines()] == ["none/a", "error: none/b"]
    (here / "none" / "c.jsonl").write_text(GOOD)
    assert tokenworks("parse", "none")[0] == 0


@pytest.mark.parametrize("arguments", [["parse", "good.jsonl"], ["--version"]])
def test_output_that_cannot_be_written_is_told(here, arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == cli.CANT_WRITE
    assert done.stderr == f"error: No space left on device. {cli._NO_ROOM}\n"


# ---- malformed input


@pytest.mark.parametrize(
    ("name", "data", "counts"),
    [
        ("blank.jsonl", payload(1) + "\n \n" + payload(2), (4, 2, 0, 2)),
        ("nul.jsonl", payload(1) + "\0\0\0\n" + payload(2), (3, 2, 1, 0)),
        ("utf8.jsonl", payload(1).encode() + payload(2).replace("hi", "h\xff").encode("latin-1"), (2, 1, 1, 0)),
        ("types.jsonl", payload(1) + payload(2, startTime="yesterday") + payload(3, prompt_tokens=[1]), (3, 1, 2, 0)),
        ("shapes.jsonl", payload(1) + payload(2, metadata="text", hidden_params=7, messages="text"), (2, 2, 0, 0)),
        ("no_end.jsonl", (payload(1) + payload(2)).rstrip("\n"), (2, 2, 0, 0)),
        ("half.jsonl", payload(1) + payload(2)[:100], (2, 1, 1, 0)),
        ("crlf.jsonl", (payload(1) + payload(2)).replace("\n", "\r\n"), (2, 2, 0, 0)),
        ("bom.jsonl", b"\xef\xbb\xbf" + (payload(1) + payload(2)).encode(), (2, 2, 0, 0)),
        ("deep.jsonl", payload(1) + "[" * 100_000 + "\n", (2, 1, 1, 0)),
        ("negative.jsonl", payload(1) + payload(2, prompt_tokens=-5), (2, 2, 0, 0)),
        ("array.json", "[" + payload(1) + "," + payload(2) + "]", (2, 2, 0, 0)),
    ],
)  # fmt: skip
def test_every_line_is_a_row_a_reject_or_something_else(here, tokenworks, name, data, counts):
    write(name, data)
    code, out, err = tokenworks("parse", name)
    assert code == 0
    lines, rows, rejects, other = counts
    assert err.splitlines()[-1] == f"{lines} lines = {rows} rows + {rejects} rejects + {other} other"
    assert len(out.splitlines()) == rows
    assert sum(line.startswith(f"{name}:") for line in err.splitlines()) == rejects


def test_a_gzip_that_is_cut_gives_what_was_before_the_cut(here, tokenworks):
    packed = gzip.compress("".join(payload(n) for n in range(2000)).encode())
    write("cut.jsonl.gz", packed[: len(packed) // 2])
    code, out, err = tokenworks("parse", "cut.jsonl.gz")
    assert code == 0
    assert err.startswith("cut.jsonl.gz: the data is cut off or damaged after ")
    assert 500 < len(out.splitlines()) < 1500


@pytest.mark.slow
def test_a_line_of_100_mb_is_one_reject(here, command):
    with Path("long.jsonl").open("w") as stream:
        stream.write(payload(1))
        stream.write(payload(2, messages=[{"role": "user", "content": "x" * 100_000_000}]))
        stream.write(payload(3))
    ran = command("parse", "long.jsonl")
    assert ran.code == 0
    assert len(ran.err) < 1000
    assert "3 lines = 2 rows + 1 rejects + 0 other" in ran.err


def test_a_log_is_piped_into_every_command(here, command):
    packed = gzip.compress(GOOD.encode())
    for arguments in (["parse", "-"], ["sniff", "-"]):
        ran = command(*arguments, input=GOOD)
        assert (ran.code, "stdin" in ran.out) == (0, True), ran.err
    write("odd.csv", "a,b\n1,2\n")
    program = [PROGRAM, "audit", "-", "odd.csv", "--out", "out"]
    done = subprocess.run(program, input=packed, capture_output=True, check=True)
    assert b"warning: odd.csv: no format recognises it" in done.stderr
    document = json.loads(Path("out/audit.json").read_text())
    assert account(document) == (5, 5)
    assert "stdin" in Path("out/audit.html").read_text()
    assert not [path for path in Path("out").rglob("*") if b'"messages"' in content(path)]


def content(path):
    return path.read_bytes() if path.is_file() else b""


def test_what_a_log_does_not_say_is_set(here, tokenworks):
    write("trace.jsonl", '{"timestamp": 1000, "input_length": 30, "output_length": 5, "hash_ids": [1, 2]}\n')
    settings = ["--set", "origin=2026-03-02T00:00:00Z", "--set", "block_size=16"]
    code, out, _ = tokenworks("parse", "trace.jsonl", *settings)
    row = json.loads(out)
    assert (code, row["started_at"], row["prefix_token_counts"]) == (0, "2026-03-02T00:00:01Z", [16, 30])


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["parse", "nowhere"], 4, r"nowhere: no such file or folder\. Check the path\."),
        (["parse", "void"], 6, r"void: no files found\. Give a log file"),
        (["parse", "empty.jsonl"], 3, r"empty\.jsonl: the file is empty\. Leave it out\."),
        (["parse", "binary"], 3, r"binary: no format recognises it \(it looks like binary data\)\. Name one"),
        (["parse", "broken.jsonl"], 3, r"broken\.jsonl: no format recognises it \(\d+ formats were tried\)\. Name"),
        (["sniff", "broken.jsonl"], 3, r"broken\.jsonl: no format recognises it"),
        (["sniff", "several"], 3, r"several: no file is of a known format"),
        (["parse", "good.jsonl", "--format", "litelm_payload"], 3, r"no format is called litelm_payload\. Did you mean"),
        (["parse", "good.jsonl", "--mapping", "nowhere.toml"], 5, r"nowhere\.toml: the mapping file can't be read"),
        (["parse", "good.jsonl", "--mapping", "bad.toml"], 5, r"bad\.toml: not valid TOML: .*line 1"),
        (["parse", "good.jsonl", "--timezone", "Mars/X"], 5, r"--timezone: 'Mars/X' is not a time zone\. Give an IANA"),
        (["parse", "good.jsonl", "--set", "zone=UTC"], 5, r"--set zone: there is no option zone\. There are: timezone, year"),
        (["parse", "good.jsonl", "--set", "origin=soon"], 5, r"--set origin: 'soon' is not an instant\. write it like"),
        (["audit", "good.jsonl", "--set", "interval_s=0"], 5, r"--set interval_s: '0' is not a number of seconds"),
        (["parse", "good.jsonl", "--set", "instance"], 5, r"--set: instance sets nothing\. Write it like instance="),
        (["parse", "good.jsonl", "--set", "year=2026", "--set", "year=2025"], 5, r"--set: year is set twice"),
        (["parse", "good.jsonl", "--set", "year=2026", "--year", "2025"], 5, r"--set: year is set twice"),
        (["sniff", "postgresql://u:s@127.0.0.1:1/db"], 4, r"postgresql://127\.0\.0\.1:1/db: the server can't be reached"),
        (["audit", "http://127.0.0.1:1/x?sig=s3cret"], 4, r"http://127\.0\.0\.1:1/x: the server can't be reached or broke"),
        (["audit", "good.jsonl", "--window", "soon"], 5, r"--window: soon is no window\. Write it like"),
        (["audit", "good.jsonl", "--fleet", "bad.toml"], 5, r"bad\.toml: not valid TOML: .*line 1.*Correct that line"),
        (["audit", "good.jsonl", "--fleet", "key.toml"], 5, r"key\.toml: site\.puee: the key 'puee' is unknown\. Did you"),
        (["audit", "good.jsonl", "--fleet", "type.toml"], 5, r"type\.toml: site\.pue: .*Correct the value"),
        (["audit", "good.jsonl", "--fleet", "card.toml"], 5, r"card\.toml: pools\[1\]\.accelerator: no accelerator"),
        (["audit", "good.jsonl", "--fleet", "nowhere.toml"], 5, r"nowhere\.toml: the fleet file can't be read"),
        (["audit", "good.jsonl", "--out", "good.jsonl"], 5, r"good\.jsonl: can't be written \(is no folder\)\. Give"),
        (["audit", "good.jsonl", "--out", "good.jsonl/x"], 5, r"good\.jsonl/x: can't be written \(is no folder\)"),
        (["audit", "good.jsonl", "--out", "/proc/x"], 5, r"/proc/x: can't be written \("),
        (["audit", "nowhere"], 4, r"nowhere: no such file or folder\. Check the path\."),
        (["audit", "empty.jsonl", "binary"], 6, r"empty\.jsonl, binary: no usable row in 2 file\(s\) \(2 of no known"),
        (["audit", "unknown"], 3, r"unknown/readme\.txt: no format recognises it"),
        (["audit", "broken.jsonl", "--format", "litellm_payload"], 6, r"1 rejected lines\).*broken\.jsonl:1: the line is"),
        (["audit", "good.jsonl", "--window", "2020-01-01..2020-01-02"], 6, r"--window: no row lies .*The files hold rows"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_place_and_remedy(here, tokenworks, arguments, code, told):
    """What the user has to mend is told by exit code and by one line."""
    (here / "void").mkdir()
    write("empty.jsonl", "")
    write("binary", bytes(range(256)) * 40)
    write("broken.jsonl", "{broken\n")
    write("unknown/readme.txt", "hello\n")
    write("several/readme.txt", "hello\n")
    write("several/notes.txt", "hello\n")
    write("bad.toml", "[[pools]\n")
    write("key.toml", "[site]\npuee = 1.2\n")
    write("type.toml", "[site]\npue = 'high'\n")
    fleet = (ROOT / "examples" / "fleet.toml").read_text()
    write("card.toml", re.sub(r'accelerator = "[^"]*"', 'accelerator = "H900"', fleet, count=1))
    found, out, err = tokenworks(*arguments)
    assert is_one_line(err), err
    assert re.search(told, err), err
    assert found == code
    assert out == "" or arguments[0] == "sniff"


@pytest.mark.parametrize(
    "arguments", [["audit"], ["audit", "--nope"], ["nope"], ["parse", "good.jsonl", "--year", "12"]]
)
def test_wrong_usage_is_told_by_exit_code_2(here, tokenworks, arguments):
    code, _, err = tokenworks(*arguments)
    assert code == 2
    assert "Usage: tokenworks" in err


def test_a_format_that_does_not_fit_is_told(here, tokenworks):
    code, _, err = tokenworks("audit", "good.jsonl", "--format", "azure_llm_trace")
    assert code in (3, 6)
    assert is_one_line(err)
    assert "good.jsonl" in err


def test_a_fault_of_the_program_is_one_line(here, tokenworks, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("secret of a log line")

    monkeypatch.setattr("parsers.sources.find_sources", broken)
    code, _, err = tokenworks("sniff", "good.jsonl")
    assert code == cli.INTERNAL_FAULT
    assert (
        err
        == "error: a fault of tokenworks (ZeroDivisionError). Set TOKENWORKS_DEBUG=1 to see where, and report it.\n"
    )


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "[bold]x", "[/]", "back\\", "\u202egnp"])
def test_hostile_names_in_errors_are_harmless(here, tokenworks, name):
    write(name, "no log\n")
    code, _, err = tokenworks("parse", name)
    assert code == 3
    assert is_one_line(err)
    shown = "".join(c if c.isprintable() else " " for c in name)
    assert shown in err
    code, _, err = tokenworks("parse", f"{name}.absent")
    assert (code, is_one_line(err)) == (4, True)


def test_a_file_that_vanishes_or_may_not_be_read_is_told_and_the_others_go_on(here, tokenworks, monkeypatch):
    """Between listing and reading a log may be rotated away."""
    from parsers import sources

    write("logs/a.jsonl", payload(1))
    write("logs/b.jsonl", payload(2))
    found = sources.find_sources(["logs"])
    monkeypatch.setattr("parsers.sources.find_sources", lambda *_: found)
    Path("logs/a.jsonl").unlink()
    code, out, err = tokenworks("parse", "logs")
    assert code == 0
    assert [json.loads(line)["request_id"] for line in out.splitlines()] == ["chatcmpl-2"]
    assert re.search(
        r"^logs/a\.jsonl: can't be read \(No such file or directory\)\. It may have been moved", err
    )

    write("logs/a.jsonl", payload(1))
    real = Path.open

    def refuse(self, *arguments, **options):
        if self.name == "a.jsonl":
            raise PermissionError(13, "Permission denied", str(self))
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    code, out, err = tokenworks("parse", "logs")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "logs/a.jsonl: can't be read (Permission denied)" in err


# ---- whole audits


def account(document: dict) -> tuple[int, int]:
    """Lines, and where they went."""
    inputs = document["inputs"]
    return inputs["lines"], sum(
        inputs[key] for key in ("requests", "buckets", "samples", "rejects", "other_lines", "duplicates")
    )


@pytest.fixture(scope="module")
def messy(tmp_path_factory, command):
    """One audit of logs that have everything wrong with them at once, and what it printed."""
    folder = tmp_path_factory.mktemp("messy")
    logs = folder / "logs"
    logs.mkdir()
    hostile = {"model": HOSTILE_MODEL, "metadata": {"user_api_key_team_alias": HOSTILE_MODEL}}
    stray = dict.fromkeys(("startTime", "endTime", "completionStartTime"), "1970-01-01T00:00:09Z")
    lines = [payload(n) for n in range(40)] + [payload(n, **hostile) for n in range(40, 60)]
    (logs / "a.jsonl").write_text("".join(lines) + "{broken\n\n[1]\n" + payload(61, prompt_tokens="x"))
    (logs / "[bold]two\nlines'.jsonl").write_text("".join(lines[30:50]) + payload(70) + payload(71, **stray))
    (logs / "copy.jsonl").write_bytes((logs / "a.jsonl").read_bytes())
    (logs / "empty.jsonl").write_text("")
    (logs / "binary").write_bytes(bytes(range(256)) * 40)
    packed = gzip.compress("".join(payload(n) for n in range(100, 400)).encode())
    (logs / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "readme.md").write_text("# logs\n")
    ran = command("audit", logs, "--out", folder / "out", "--fleet", ROOT / "examples" / "fleet.toml")
    return folder, ran


@pytest.mark.slow
def test_a_messy_folder_is_audited_and_every_line_accounted_for(messy):
    folder, ran = messy
    assert ran.code == 0, ran.err
    document = json.loads((folder / "out" / "audit.json").read_text())
    lines, found = account(document)
    assert lines == found > 80
    assert document["inputs"]["duplicates"] == 20
    assert document["inputs"]["copies"] == 1
    assert document["window"]["start"].startswith("2026-11-16")
    checks = {row["check"]: row for row in document["data_quality"]}
    assert (
        "1 row(s) on 1970-01-01 lie more than 31 days" in checks["rows lie close together in time"]["detail"]
    )
    assert HOSTILE_MODEL in document["tokens"]["by_model"]


@pytest.mark.slow
def test_hostile_text_stays_text_on_the_terminal_and_on_the_page(messy):
    folder, ran = messy
    for line in (ran.out + ran.err).splitlines():
        assert line.isprintable(), line
    page = (folder / "out" / "audit.html").read_text()
    assert "<img src=x onerror" not in page
    assert "</script><img" not in page


@pytest.mark.slow
def test_a_second_audit_of_the_same_folder_is_refused_and_ctrl_c_leaves_it_whole(messy, here, command):
    """The first holds the lock; stopped by the user it says so, and the next run works."""
    folder, _ = messy
    out = here / "out"
    first = subprocess.Popen(
        [PROGRAM, "audit", folder / "logs", "--out", out], stderr=subprocess.PIPE, text=True
    )
    while not (out / "landings.json").exists():
        assert first.poll() is None
        time.sleep(0.1)
    second = command("audit", folder / "logs", "--out", out)
    assert second.code == 1
    assert is_one_line(second.err)
    assert f"another run (process {first.pid}) is working on this folder" in second.err
    first.send_signal(signal.SIGINT)
    assert first.communicate(timeout=120)[1] == "stopped; nothing is lost: run the same command again\n"
    assert first.returncode == cli.INTERRUPTED
    assert not (out / "audit.json").exists()


@pytest.mark.parametrize(
    "work",
    [
        pytest.param("while True: pass", id="in Python"),
        pytest.param("import ctypes; ctypes.CDLL(None).pause()", id="in native code that hears of no signal"),
        pytest.param(
            "import atexit, time; atexit.register(time.sleep, 30)\n    while True: pass", id="with a slow end"
        ),
    ],
)
def test_ctrl_c_ends_a_command_whatever_it_is_doing(work):
    """It is told once, in one line, and the exit code says so."""
    script = (
        "from pipelines import cli\n"
        "cli._end_on_interrupt()\n"
        f"with cli._one_line_errors():\n    print('up', flush=True)\n    {work}\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=60)[1] == "stopped; nothing is lost: run the same command again\n"
    assert running.returncode == cli.INTERRUPTED


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_while_it_waits_for_a_pipe_leaves_no_text_behind(here, ending):
    """What came by then may hold prompts; it lay in the folder for temporary files until someone cleaned up."""
    running = subprocess.Popen(
        [PROGRAM, "parse", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(here)},
    )
    assert running.stdin is not None
    assert running.stderr is not None
    running.stdin.write(b'{"prompt": "a secret"}\n' * 1_000_000)
    running.stdin.flush()
    latest = time.monotonic() + 120
    while not any(path.stat().st_size for path in here.glob("tokenworks-*/live/stdin")):
        assert running.poll() is None
        assert time.monotonic() < latest
        time.sleep(0.05)
    running.send_signal(ending)
    assert running.wait(timeout=60) == cli.INTERRUPTED
    assert running.stderr.read() == b"stopped; nothing is lost: run the same command again\n"
    assert not list(here.glob("tokenworks-*"))
    running.stdin.close()
    running.stderr.close()


@pytest.mark.slow
def test_an_audit_without_room_is_told(messy, here):
    """A limit on the size of files stands for a disk that is full."""
    folder, _ = messy

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [PROGRAM, "audit", folder / "logs", "--out", here / "out"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == cli.CANT_WRITE, done.stderr
    assert is_one_line(done.stderr)
    assert done.stderr.endswith(f"{cli._NO_ROOM}\n")
    assert not (here / "out" / "audit.json").exists()


@pytest.mark.slow
def test_a_fleet_without_a_pool_for_any_model_is_audited(messy, here, command):
    folder, _ = messy
    fleet = re.sub(
        r"models = \[[^]]*\]", 'models = ["no-such-model"]', (ROOT / "examples" / "fleet.toml").read_text()
    )
    write("fleet.toml", fleet)
    ran = command("audit", folder / "logs" / "a.jsonl", "--out", here / "out", "--fleet", here / "fleet.toml")
    assert ran.code == 0, ran.err
    assert json.loads((here / "out" / "audit.json").read_text())["inputs"]["requests"] == 60
