"""The live source: a real Prometheus over a small exporter, and servers that answer otherwise."""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs
from urllib.request import urlopen

import pytest

from parsers import live, web
from parsers.errors import NothingToAuditError, SiteConfigError, UnreadableSourceError
from parsers.live import Live
from parsers.live_prometheus import TOKEN_VARIABLE, fetched
from parsers.sources import find_sources

ROOT = Path(__file__).resolve().parents[2]
BEGIN = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = (BEGIN, BEGIN + timedelta(hours=1))
SCRAPE = """# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {count}
vllm:num_requests_running{{engine="0",model_name="m"}} 3
litellm_total_tokens_metric_total{{model="m"}} 5
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-a",Hostname="n1"}} 301.5
"""


@contextmanager
def serving(answer):
    """A server on 127.0.0.1; `answer(handler)` gives status and body. Yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - as http.server names it

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def asked(handler):
    size = int(handler.headers["Content-Length"])
    return {name: values[0] for name, values in parse_qs(handler.rfile.read(size).decode()).items()}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def prometheus(exporter, folder):
    """A Prometheus that scrapes the exporter each second; ended by its id."""
    program = shutil.which("prometheus", path=f"{ROOT / '.tools'}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.skip("no prometheus on PATH or under .tools (scripts/install-prometheus.sh puts it there)")
    config, port = folder / "prometheus.yml", free_port()
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [{"job_name": "engine", "static_configs": [{"targets": [exporter]}]}],
            }
        )
    )
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def samples_in(address):
    try:
        with urlopen(
            f"http://{address}/api/v1/query?query=count_over_time(vllm:num_requests_running[1m])"
        ) as answer:
            result = json.load(answer)["data"]["result"]
    except OSError:
        return 0
    return int(result[0]["value"][1]) if result else 0


@pytest.mark.slow
def test_a_real_prometheus_is_asked_and_read_like_files(tmp_path, read_source):
    counts = iter(range(100, 100_000, 10))
    with (
        serving(lambda _: (200, SCRAPE.format(count=next(counts)).encode())) as exporter,
        prometheus(exporter, tmp_path) as server,
    ):
        deadline = time.monotonic() + 30
        while samples_in(server) < 4 and time.monotonic() < deadline:
            time.sleep(0.2)
        now = datetime.now(UTC)
        live = Live(tmp_path / "live", (now - timedelta(minutes=1), now))
        sources = find_sources([f"prometheus+http://{server}/?step=1"], live)

    (tmp_path / "work").mkdir()
    results = {result.format: result for result in (read_source(each, tmp_path / "work") for each in sources)}
    assert set(results) == {"prometheus_query_range", "prometheus_query_range_devices"}
    engine, device = results["prometheus_query_range"], results["prometheus_query_range_devices"]
    tokens = engine.rows["generation_tokens_total"].drop_nulls().to_list()
    assert len(tokens) >= 3
    assert tokens == sorted(tokens)
    assert all(count % 10 == 0 and count >= 100 for count in tokens)
    assert engine.rows["instance"].unique().to_list() == [exporter]
    assert device.rows["power_w"].unique().to_list() == [301.5]
    assert engine.rejects.is_empty()
    assert device.rejects.is_empty()


def test_the_window_is_asked_in_pieces_without_an_instant_twice(tmp_path):
    questions = []

    def answer(handler):
        question = asked(handler)
        questions.append(question)
        series = {
            "metric": {"__name__": "vllm:num_requests_running"},
            "values": [[int(question["start"]), "1"]],
        }
        found = [series] if "vllm" in question["query"] else []
        body = {"status": "success", "data": {"resultType": "matrix", "result": found}}
        return 200, json.dumps(body).encode()

    window = (BEGIN + timedelta(seconds=7), BEGIN + timedelta(days=1))
    with serving(answer) as server:
        folder = fetched(f"prometheus+http://{server}/prefix/", Live(tmp_path, window))
        (folder / "stale.json").touch()
        again = fetched(f"prometheus+http://{server}/prefix/", Live(tmp_path, window))
    assert again == folder
    instants = [
        instant
        for question in questions[: len(questions) // 2]
        if "vllm" in question["query"]
        for instant in range(int(question["start"]), int(question["end"]) + 1, int(question["step"]))
    ]
    first, last = BEGIN.timestamp() + 15, BEGIN.timestamp() + 86_400 - 15
    assert instants == list(range(int(first), int(last) + 1, 15))
    assert len(list(folder.iterdir())) == sum("vllm" in each["query"] for each in questions) // 2
    assert all("litellm" not in each["query"] for each in questions)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", f"HTTP 401, Unauthorized.*{TOKEN_VARIABLE}"),
        (404, b"<html>secret", "HTTP 404, Not Found.*prefix"),
        (
            422,
            b'{"status":"error","errorType":"execution","error":"too many"}',
            "HTTP 422, execution.*step=60",
        ),
        (500, b"[]", "HTTP 500"),
        (200, b"<html>login</html>", "does not answer like Prometheus"),
    ],
)
def test_refusals_name_the_server_and_the_remedy(tmp_path, status, body, said):
    with serving(lambda _: (status, body)) as server:
        with pytest.raises(UnreadableSourceError, match=rf"http://{server}: .*{said}") as caught:
            fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))
        assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_or_has_nothing_is_said(tmp_path):
    with pytest.raises(UnreadableSourceError, match=r"can't be reached or broke off \(.*refused"):
        fetched(f"prometheus+http://127.0.0.1:{free_port()}", Live(tmp_path, HOUR))
    empty = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
    with (
        serving(lambda _: (200, empty)) as server,
        pytest.raises(NothingToAuditError, match=r"no metric of an engine.*--window"),
    ):
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))


def test_the_token_goes_to_the_server_and_credentials_do_not_stand_in_addresses(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "t0ken")
    seen = []

    def answer(handler):
        seen.append(handler.headers["Authorization"])
        return 403, b""

    with serving(answer) as server, pytest.raises(UnreadableSourceError) as caught:
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))
    assert seen == ["Bearer t0ken"]
    assert "t0ken" not in str(caught.value)
    with pytest.raises(SiteConfigError, match=TOKEN_VARIABLE) as caught:
        fetched("prometheus+https://ann:pass@host/", Live(tmp_path, HOUR))
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "prometheus+http://",
        "prometheus+http://[h",
        "prometheus+http://h/?step=0",
        "prometheus+http://h/?token=s3cret&step=x",
    ],
)
def test_wrong_addresses_are_refused(tmp_path, address):
    with pytest.raises(SiteConfigError, match="step=60") as caught:
        fetched(address, Live(tmp_path, HOUR))
    assert "s3cret" not in str(caught.value)


def test_an_answer_that_breaks_off_or_has_no_end_is_no_answer(tmp_path, monkeypatch):
    def cut(handler):
        handler.wfile.write(b'HTTP/1.0 200 OK\r\nContent-Length: 999\r\n\r\n{"status":"success"')
        return 200, b""

    with serving(cut) as server, pytest.raises(UnreadableSourceError, match=r"broke off \(.* of 999 bytes"):
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))
    monkeypatch.setattr(live, "MAX_BYTES", 5)
    with (
        serving(lambda _: (200, b'{"status":"success"}')) as server,
        pytest.raises(UnreadableSourceError, match="larger than 5 bytes"),
    ):
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))


def test_a_full_disk_is_not_blamed_on_the_server(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(web, "spool", full)
    with serving(lambda _: (200, b"{}")) as server, pytest.raises(OSError, match="No space left"):
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))


def test_a_token_that_is_no_header_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "t0ken\nx")
    with (
        serving(lambda _: (200, b"{}")) as server,
        pytest.raises(UnreadableSourceError, match="ValueError") as caught,
    ):
        fetched(f"prometheus+http://{server}", Live(tmp_path, HOUR))
    assert "t0ken" not in str(caught.value)


def test_addresses_are_told_from_paths_and_are_for_audits_only():
    for address in ("prometheus+http://127.0.0.1:1", "Prometheus+HTTPS://h"):
        with pytest.raises(UnreadableSourceError, match="tokenworks audit"):
            find_sources([address])
    for path in ("prometheus+http", "logs/prometheus+http://h"):
        with pytest.raises(UnreadableSourceError, match="no such file"):
            find_sources([path])
