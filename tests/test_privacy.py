"""What must not be kept is not kept: prompts, tools, answers, error messages, keys, headers and addresses of clients.

Secrets are planted in every place of a gateway's and an engine's log, in good lines and in broken ones. Then every file
that is left, decoded and as bytes, and everything that was printed, is searched for them.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

from parsers.sources import find_sources
from pipelines import cli
from pipelines.ingest.land import Reading, land_all
from warehouse.store import Warehouse

KEY = "sk-PLANTEDkey0123456789abcdef"
SECRETS = {
    "prompt": "PLANTEDprompt my diagnosis is",
    "system": "PLANTEDsystem prompt",
    "tool": "PLANTED_tool_definition",
    "answer": "PLANTEDanswer text",
    "error": "PLANTEDerror message",
    "trace": "PLANTEDstack trace",
    "key": KEY,
    "bearer": "Bearer PLANTEDbearer",
    "header": "PLANTEDheader value",
    "password": "PLANTEDpassword",
    "query": "PLANTEDquerykey",
    "address": "203.0.113.77",
    "cookie": "PLANTEDcookie",
}
NEEDLES = sorted({*SECRETS.values(), "PLANTED", "203.0.113."})


def payload(n: int, **fields) -> dict:
    start = 1_794_830_400 + n
    return {
        "id": f"chatcmpl-{n}",
        "litellm_call_id": f"call-{n}",
        "call_type": "acompletion",
        "status": "success",
        "startTime": start,
        "endTime": start + 1,
        "completionStartTime": start + 0.5,
        "model": "gpt-4o",
        "prompt_tokens": 1000 + n,
        "completion_tokens": 10,
        "total_tokens": 1010 + n,
        "response_cost": 0.001,
        "api_base": f"https://user:{SECRETS['password']}@api.example.com/v1?api-key={SECRETS['query']}#x",
        "hidden_params": {
            "additional_headers": {"llm_provider-set-cookie": SECRETS["cookie"]},
            "api_base": KEY,
        },
        "metadata": {
            "user_api_key_hash": KEY,
            "user_api_key": KEY,
            "user_api_key_team_alias": "support",
            "requester_ip_address": SECRETS["address"],
            "requester_custom_headers": {"x-secret": SECRETS["header"], "authorization": SECRETS["bearer"]},
            "requester_metadata": {"note": SECRETS["header"]},
        },
        "messages": [
            {"role": "system", "content": SECRETS["system"] + " x" * 900},
            {"role": "user", "content": [{"type": "text", "text": SECRETS["prompt"]}]},
        ],
        "model_parameters": {
            "tools": [{"function": {"name": SECRETS["tool"]}}],
            "extra_headers": SECRETS["bearer"],
        },
        "response": {"choices": [{"finish_reason": "stop", "message": {"content": SECRETS["answer"]}}]},
        "error_str": SECRETS["error"],
        "error_information": {"error_message": SECRETS["error"], "traceback": SECRETS["trace"]},
        "proxy_server_request": {
            "headers": {"authorization": SECRETS["bearer"]},
            "body": {"messages": SECRETS["prompt"]},
        },
    } | fields


def failed(n: int) -> dict:
    error = {
        "error_class": "RateLimitError",
        "error_code": "429",
        "error_message": SECRETS["error"],
        "traceback": SECRETS["trace"],
    }
    return payload(n, status="failure", prompt_tokens=0, completion_tokens=0, error_information=error)


def broken(line: str) -> list[str]:
    """What may go wrong with a line that holds secrets."""
    return [
        line[:-200],
        line.replace('"prompt_tokens": 10', '"prompt_tokens": "many 10'),
        line.replace('"startTime": 17', '"startTime": "PLANTEDprompt 17'),
        f"{SECRETS['bearer']} {KEY} {SECRETS['address']} - {SECRETS['prompt']}",
        f'"{SECRETS["prompt"]}"',
        json.dumps([SECRETS["prompt"]]),
        json.dumps({SECRETS["prompt"]: KEY, KEY: SECRETS["prompt"]}),
        "{" + f"'authorization': '{SECRETS['bearer']}'" + "}",
        line.replace("system", "s\ud83dystem").encode("utf-8", "surrogatepass").decode("latin-1"),
    ]


def spend_logs() -> str:
    """LiteLLM SpendLogs as CSV, with bodies, keys and addresses, and records with too few and too many cells."""
    rows = []
    for n in range(5):
        rows.append(
            {
                "request_id": f"chatcmpl-spend-{n}",
                "call_type": "acompletion",
                "api_key": KEY,
                "spend": "0.001",
                "total_tokens": "110",
                "prompt_tokens": "100",
                "completion_tokens": "10",
                "startTime": f"2026-11-16 13:00:0{n}.000",
                "endTime": f"2026-11-16 13:00:0{n}.900",
                "completionStartTime": f"2026-11-16 13:00:0{n}.500",
                "model": "gpt-4o",
                "model_id": "",
                "model_group": "gpt-4o",
                "custom_llm_provider": "openai",
                "api_base": f"https://u:{SECRETS['password']}@api.example.com/v1?key={SECRETS['query']}",
                "user": "",
                "metadata": json.dumps(
                    {"status": "success", "error_information": {"error_message": SECRETS["error"]}}
                ),
                "cache_hit": "False",
                "cache_key": "Cache OFF",
                "request_tags": "[]",
                "team_id": "support",
                "end_user": "",
                "requester_ip_address": SECRETS["address"],
                "messages": json.dumps([{"role": "user", "content": SECRETS["prompt"]}]),
                "response": json.dumps({"choices": [{"message": {"content": SECRETS["answer"]}}]}),
                "proxy_server_request": json.dumps({"headers": {"authorization": SECRETS["bearer"]}}),
                "session_id": "",
                "status": "success",
            }
        )
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    bad = f"{KEY},{SECRETS['prompt']},{SECRETS['address']}\n"
    return text.getvalue() + bad + text.getvalue().splitlines()[1].replace("0.001", SECRETS["prompt"]) + "\n"


def engine_log() -> str:
    return "".join(
        f"INFO 11-16 13:00:{n:02} [loggers.py:100] Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation "
        f"throughput: 3.5 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.5%, Prefix cache hit rate: 1.0%\n"
        f"INFO 11-16 13:00:{n:02} [logger.py:43] Received request chatcmpl-{n}: prompt: '{SECRETS['prompt']}', params: x\n"
        f"INFO 11-16 13:00:{n:02} [api.py:1] args: Namespace(api_key=['{KEY}'], model='m')\n"
        f'INFO:     {SECRETS["address"]}:4711 - "POST /v1/chat/completions?key={SECRETS["query"]} HTTP/1.1" 200 OK\n'
        f"ERROR 11-16 13:00:{n:02} [x.py:1] {SECRETS['error']}\n{SECRETS['trace']}\n"
        for n in range(10)
    )


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("secrets") / "logs"
    folder.mkdir()
    lines = [json.dumps(payload(n)) for n in range(20)] + [json.dumps(failed(n)) for n in range(20, 25)]
    lines += [bad for n in range(3) for bad in broken(json.dumps(payload(50 + n)))]
    (folder / "payload.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "spend.csv").write_text(spend_logs())
    (folder / "vllm.log").write_text(engine_log())
    (folder / "unknown.txt").write_text("\n".join(SECRETS.values()))
    cut = "[" + json.dumps(payload(90)) + "," + json.dumps(payload(91))[:-300]
    (folder / "array.json").write_text(cut)
    return folder


def found_in(texts: dict[str, str]) -> set[tuple[str, str]]:
    return {(place, needle) for place, text in texts.items() for needle in NEEDLES if needle in text}


def everything_in(folder: Path) -> dict[str, str]:
    """Every file as bytes, and decoded where it is Parquet or DuckDB."""
    texts: dict[str, str] = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        texts[f"{path} (bytes)"] = path.read_bytes().decode("latin-1")
        if path.suffix in (".parquet", ".frame"):
            texts[str(path)] = json.dumps(
                pl.read_parquet(path, glob=False).to_dicts(), default=str, ensure_ascii=False
            )
        if path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (name,) in connection.sql("SELECT table_name FROM duckdb_tables()").fetchall():
                    texts[f"{path}:{name}"] = str(connection.sql(f'SELECT * FROM "{name}"').fetchall())
    return texts


def test_nothing_planted_is_landed(logs, tmp_path):
    """The parsed files, the rejects with their excerpts, and the manifest."""
    warehouse = Warehouse(tmp_path)
    landings = land_all(find_sources([logs]), warehouse, Reading())
    formats = {landing.format for landing in landings}
    assert {"litellm_payload", "litellm_spend_logs_csv", "vllm_log"} <= formats
    assert sum(landing.rejects for landing in landings) >= 20
    assert sum(landing.rows for landing in landings) >= 40
    excerpts = pl.concat(
        pl.read_parquet(part) for item in landings for part in warehouse.parts(item.id, "rejects")
    )["excerpt"]
    assert excerpts.null_count() < len(excerpts)
    texts = everything_in(tmp_path) | {"landings": str(landings)}
    assert len(texts) > 10
    assert found_in(texts) == set()


def test_nothing_planted_is_printed(logs, capsys, monkeypatch):
    for name in ("payload.jsonl", "spend.csv", "vllm.log", "unknown.txt", "array.json", ""):
        for arguments in (["parse", str(logs / name)], ["sniff", str(logs / name)]):
            monkeypatch.setattr(sys, "argv", ["tokenworks", *arguments])
            with pytest.raises(SystemExit):
                cli.main()
            printed = capsys.readouterr()
            assert printed.out + printed.err
            assert found_in({name: printed.out + printed.err}) == set()


@pytest.mark.slow
def test_nothing_planted_is_left_by_an_audit(logs, tmp_path, command):
    """The whole data folder, the report and the terminal."""
    out = tmp_path / "out"
    ran = command("audit", logs, "--out", out, "--title", "week")
    assert ran.code == 0, ran.err
    names = {path.name for path in out.rglob("*")}
    assert {"audit.html", "audit.json", "marts.duckdb", "requests.parquet", "rejects.parquet"} <= names
    assert found_in(everything_in(out) | {"stdout": ran.out, "stderr": ran.err}) == set()


def test_the_search_itself_finds_what_is_there(tmp_path):
    """A search that cannot find anything proves nothing."""
    pl.DataFrame({"x": [KEY * 100]}).write_parquet(tmp_path / "a.parquet", compression="zstd")
    with duckdb.connect(str(tmp_path / "b.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 'PLANTEDprompt' AS x")
    places = {Path(place.split(" ")[0].split(":")[0]).name for place, _ in found_in(everything_in(tmp_path))}
    assert places == {"a.parquet", "b.duckdb"}
