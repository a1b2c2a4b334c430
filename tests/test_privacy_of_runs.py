"""Nothing that was said in a log is in anything that a whole run leaves: report, tables, terminal, scratch folders, and
the history that Dagster keeps.

Logs of many formats are planted as in `test_privacy_of_cases.py`: a mark at every place, and a credential at every place
that is kept. Addresses with passwords are given where a path is wanted.
"""

from __future__ import annotations

import json
import os

import dagster as dg
import pytest

from pipelines import schedules
from pipelines.definitions import build_defs
from tests.planting import CASES, CREDENTIALS, KEPT, MARK, everything_in

FORMATS = (
    *(
        "litellm_payload",
        "litellm_spend_logs",
        "litellm_spend_logs_csv",
        "anthropic_messages",
        "openai_usage",
    ),
    *("gemini_generate_content", "bedrock_invocation_log", "langfuse_observations", "langsmith_runs"),
    *(
        "helicone_requests",
        "portkey_logs",
        "claude_code_transcript",
        "otlp_spans",
        "kong_ai_proxy",
        "vllm_log",
    ),
)
ADDRESSES = (
    "http://me:PLANTEDpw@127.0.0.1:9/x?sig=PLANTEDq",
    "https://127.0.0.1:9/x?sig=PLANTEDq#PLANTEDf",
    "prometheus+http://me:PLANTEDpw@127.0.0.1:9",
    "postgresql://me:PLANTED/pw@127.0.0.1:9/db?sslmode=require&password=PLANTEDq",
    "s3://PLANTEDid:PLANTEDpw@bucket/x",
    "mysql://me:PLANTEDpw@127.0.0.1:9/db?password=PLANTEDq",
    "clickhouse+http://me:PLANTED/pw@host.example/db",
    "me:PLANTEDpw@host.example/db",
)


# Great Expectations and what it imports warn of themselves; Dagster's SQLite is closed by the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def planted_logs(tmp_path_factory):
    """Logs of many formats; gives their folder and the marks that may be found, which are those of kept places."""
    listed = json.loads(KEPT.read_text(encoding="utf-8"))
    folder = tmp_path_factory.mktemp("many") / "logs"
    folder.mkdir()
    allowed: set[str] = set()
    count = 0
    for case in CASES:
        if case.format not in FORMATS or (case.folder / "options.toml").exists():
            continue
        entry = listed[case.format]
        what = {}
        for place in case.free(entry):
            count += 1
            kept = place in entry["kept"]
            credential = f" {CREDENTIALS[count % len(CREDENTIALS)]}" if kept else ""
            what[place] = f"zq{count:04}x said{credential}"
            allowed |= {f"{count:04}"} if kept else set()
        (folder / f"{case.format}-{case.folder.name}{case.input.suffix}").write_bytes(case.planted(what))
    return folder, allowed


def leaks(texts: dict[str, str], allowed: set[str]) -> set[tuple[str, str]]:
    marks = {(where, mark) for where, text in texts.items() for mark in set(MARK.findall(text)) - allowed}
    return marks | {(where, "PLANTED") for where, text in texts.items() if "planted" in text.lower()}


@pytest.mark.slow
def test_an_audit_of_many_formats_leaves_nothing_that_was_said(planted_logs, tmp_path, command):
    folder, allowed = planted_logs
    scratch, home, out = (tmp_path / name for name in ("scratch", "home", "out"))
    scratch.mkdir()
    home.mkdir()
    where = {**os.environ, "TMPDIR": str(scratch), "HOME": str(home)}
    ran = command("audit", folder, "--out", out, "--title", "week", env=where)
    assert ran.code == 0, ran.err
    texts = everything_in(out) | everything_in(scratch) | everything_in(home)
    told = json.loads((out / "audit.json").read_text(encoding="utf-8"))
    assert len(told["inputs"]["by_format"]) >= 12
    assert allowed & set(MARK.findall((out / "audit.json").read_text(encoding="utf-8")))
    assert leaks(texts | {"stdout": ran.out, "stderr": ran.err}, allowed) == set()


@pytest.mark.slow
def test_the_history_of_a_scheduled_run_holds_nothing_that_was_said(planted_logs, tmp_path, monkeypatch):
    """Events, logs of steps and their storage, of a run that lands all files and ends well, checks included."""
    folder, allowed = planted_logs
    history = tmp_path / "dagster"
    run_landing(str(folder), tmp_path, history, monkeypatch, fails=False)
    texts = everything_in(history) | everything_in(tmp_path / "home")
    assert any(path.suffix == ".db" for path in history.rglob("*"))
    assert leaks(texts, allowed) == set()


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES)
def test_the_history_of_a_failed_run_holds_no_password_of_an_address(address, tmp_path, monkeypatch):
    history = tmp_path / "dagster"
    run_landing(address, tmp_path, history, monkeypatch, fails=True)
    assert leaks(everything_in(history) | everything_in(tmp_path / "home"), set()) == set()


def run_landing(logs, tmp_path, history, monkeypatch, *, fails) -> None:
    monkeypatch.setenv("TOKENWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKENWORKS_LOGS", logs)
    monkeypatch.setenv("TOKENWORKS_WINDOW_DAYS", "3000")
    history.mkdir()
    days = {schedules.RANGE_START: "2026-03-01", schedules.RANGE_END: "2026-08-31"}
    with dg.DagsterInstance.local_temp(str(history), overrides={"telemetry": {"enabled": False}}) as instance:
        result = (
            build_defs()
            .resolve_job_def("pipeline")
            .execute_in_process(
                instance=instance,
                tags=days,
                raise_on_error=False,
                asset_selection=[dg.AssetKey(n) for n in ("landed_files", "requests", "files", "rejects")],
            )
        )
    assert result.success is not fails


@pytest.mark.slow
@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("verb", ["parse", "sniff", "audit"])
def test_no_password_of_an_address_is_told(verb, address, tmp_path, command):
    ran = command(verb, address, cwd=tmp_path)
    assert ran.code != 0
    assert leaks(everything_in(tmp_path) | {"stdout": ran.out, "stderr": ran.err}, set()) == set()
