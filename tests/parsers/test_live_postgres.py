"""The live source Postgres: a real server that the test starts, holding the tables that gateways write."""

from __future__ import annotations

import gzip
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from parsers.errors import NothingToAuditError, SiteConfigError, UnreadableSourceError
from parsers.live import Live
from parsers.live_postgres import fetched
from parsers.sources import find_sources

PASSWORD = "s3cret/w?rd@x"  # noqa: S105 - of the server that the test starts
DAY = datetime(2026, 3, 2, tzinfo=UTC)
NEW_API = """
CREATE TABLE logs (id bigint PRIMARY KEY, user_id bigint, created_at bigint, type bigint, content text,
    username text, token_name text, model_name text, quota bigint, prompt_tokens bigint, completion_tokens bigint,
    use_time bigint, is_stream boolean, channel_id bigint, token_id bigint, "group" text, ip text, other text);
INSERT INTO logs VALUES
    (3, 1, 1772449210, 2, E'hostile \\n {"line": 1} \\x1b[31m ✓', 'ann', 'key-1', 'gpt-4o-mini', 500, 1000, 50, 2, true, 7, 9, 'default', '10.9.8.7', '{"cache_tokens":200,"frt":310}'),
    (1, 1, 1772409600, 2, '', 'ann', 'key-1', 'gpt-4o-mini', 5, 10, 5, 1, false, 7, 9, 'default', '10.9.8.7', ''),
    (2, 1, 1772445600, 1, 'top-up', 'ann', '', '', 0, 0, 0, 0, false, 0, 0, '', '', NULL),
    (4, 1, 1772668800, 2, '', 'bob', 'key-2', 'gpt-4o-mini', 5, 10, 5, 1, false, 7, 9, 'default', '', '{}');
"""


@dataclass(frozen=True)
class Server:
    port: int
    psql: Path
    user: str | None

    def address(self, database, user="owner", password=PASSWORD, query=""):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}{query}".replace(
            "@", f":{password.replace('/', '%2F').replace('?', '%3F').replace('@', '%40')}@", 1
        )

    def run(self, database, statement, content=None):
        subprocess.run(
            [self.psql, "-qX", "-v", "ON_ERROR_STOP=1", "-c", statement],
            env={
                **os.environ,
                "PGHOST": "127.0.0.1",
                "PGPORT": str(self.port),
                "PGUSER": "owner",
                "PGDATABASE": database,
                "PGPASSWORD": PASSWORD,
            },
            input=content,
            check=True,
            capture_output=True,
        )

    def create(self, database, statements):
        self.run("postgres", f"CREATE DATABASE {database}")
        self.run(database, statements)


def programs():
    """Folder of Postgres's programs: Debian does not put it on PATH."""
    on_path = shutil.which("initdb")
    found = [*([Path(on_path)] if on_path else []), *sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    if not found:
        pytest.skip("no Postgres server on this machine (Debian: apt-get install postgresql)")
    return found[-1].parent


def unprivileged():
    """Whom to run the server as: it refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return pytest.skip("Postgres refuses to run as root, and there is no user postgres or nobody")


@contextmanager
def running():
    pytest.importorskip("adbc_driver_postgresql", reason="the extra `postgres` is not installed")
    folder, user = programs(), unprivileged()
    as_user = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}
    with tempfile.TemporaryDirectory(prefix="tokenworks-pg-") as home, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        data, secret, log = (Path(home) / name for name in ("data", "password", "log"))
        data.mkdir()
        secret.write_text(PASSWORD)
        Path(home).chmod(0o755)
        if user:
            shutil.chown(data, user)
        subprocess.run(
            [
                folder / "initdb",
                *("-D", data, "-U", "owner", "--auth=scram-sha-256", f"--pwfile={secret}"),
                *("--no-sync", "--encoding=UTF8", "--locale=C"),
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **as_user,
        )
        probe.close()
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    folder / "postgres",
                    *("-D", data, "-p", str(port)),
                    *(part for setting in settings for part in ("-c", setting)),
                ],
                stdout=out,
                stderr=out,
                cwd="/",
                **as_user,
            )
        try:
            deadline = time.monotonic() + 60
            while b"ready to accept connections" not in log.read_bytes():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Server(port, folder / "psql", user)
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def new_api(server):
    server.create("new_api", NEW_API)
    return server


def lines_below(folder):
    return [
        json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text("utf-8").splitlines()
    ]


def test_the_recorded_table_gives_the_rows_of_its_csv(server, shared, read_source, tmp_path):
    """Loaded into a server, SpendLogs comes out as from the dump: each row, each value."""
    folder = shared / "data/real/litellm"
    if not (folder / "LiteLLM_SpendLogs.csv.gz").is_file():
        pytest.skip("the recorded table is not in the shared folder")
    columns = []
    for line in (folder / "LiteLLM_SpendLogs.schema.txt").read_text().splitlines():
        name, kind, _, null, default = line.split("|")
        columns.append(f'"{name}" {kind} {null}' + (f" DEFAULT {default}" if default else ""))
    server.create("litellm", f'CREATE TABLE "LiteLLM_SpendLogs" ({", ".join(columns)})')
    dump = gzip.decompress((folder / "LiteLLM_SpendLogs.csv.gz").read_bytes())
    server.run("litellm", 'COPY "LiteLLM_SpendLogs" FROM STDIN (FORMAT csv, HEADER)', dump)

    (tmp_path / "work").mkdir()
    (source,) = find_sources([server.address("litellm")], Live(tmp_path / "live"))
    from_table = read_source(source, tmp_path / "work", name="input")
    (dumped,) = find_sources([folder / "LiteLLM_SpendLogs.csv.gz"])
    from_dump = read_source(dumped, tmp_path / "work", name="input")

    assert from_table.format == "litellm_spend_logs"
    assert source.name == f"postgresql://127.0.0.1:{server.port}/litellm/public.LiteLLM_SpendLogs.jsonl"
    assert from_table.lines == 412
    assert from_table.rejects.is_empty()
    same = [
        frame.drop("source_line", "source_format").sort("request_id")
        for frame in (from_table.rows, from_dump.rows)
    ]
    different = [name for name in same[0].columns if not same[0][name].equals(same[1][name])]
    assert different == []
    kept = lines_below(tmp_path / "live")
    assert [line["startTime"] for line in kept] == sorted(line["startTime"] for line in kept)
    assert not {"messages", "response", "proxy_server_request", "requester_ip_address"} & kept[0].keys()


def test_the_window_is_asked_for_and_prompts_and_addresses_stay_there(new_api, tmp_path, read_source):
    """A row is stamped with the end of its call, so that of a long one may lie behind the window."""
    address, window = new_api.address("new_api"), (DAY + timedelta(hours=1), DAY + timedelta(days=1))
    sources = find_sources([address], Live(tmp_path / "live", window))
    kept = lines_below(tmp_path / "live")
    assert [line["id"] for line in kept] == [2, 3]
    assert not {"ip", "token_id"} & kept[0].keys()
    (tmp_path / "work").mkdir()
    (result,) = (read_source(source, tmp_path / "work") for source in sources)
    assert (result.format, result.rows.height, result.other_lines) == ("new_api_logs", 1, 1)
    row = result.rows.row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["output_tokens"]) == (1000, 200, 50)
    assert row["stream"] is True

    fetched(address, Live(tmp_path / "all"))
    assert [line["id"] for line in lines_below(tmp_path / "all")] == [1, 2, 3, 4]
    later = (DAY + timedelta(days=30), DAY + timedelta(days=31))
    with pytest.raises(NothingToAuditError, match=r"no row in the window.*--window"):
        fetched(address, Live(tmp_path / "none", later))


def test_a_table_of_another_name_is_named_and_zones_are_minded(server, tmp_path):
    server.create(
        "other",
        """CREATE SCHEMA "a.b"; CREATE TABLE "a.b"."my ""logs" AS SELECT 'r1' AS request_id, 'acompletion' AS call_type,
        0.00000000000000001::float8 AS spend, 3 AS prompt_tokens, 4 AS completion_tokens,
        timestamptz '2026-03-02 01:30:00+02' AS "startTime", E'{\n "usage_object": null}'::json AS metadata;
        CREATE TABLE logs (line text)""",
    )
    window = (DAY - timedelta(hours=1), DAY)
    fetched(server.address("other", query="?table=a.b.my%20%22logs"), Live(tmp_path, window))
    (line,) = lines_below(tmp_path)
    assert line["startTime"] == "2026-03-01T23:30:00+00:00"
    assert line["metadata"] == {"usage_object": None}
    assert line["spend"] == 1e-17
    with pytest.raises(UnreadableSourceError, match=r"LiteLLM_SpendLogs, logs is there.*\?table="):
        fetched(server.address("other"), Live(tmp_path))
    with pytest.raises(UnreadableSourceError, match="no table logs with the columns"):
        fetched(server.address("other", query="?table=logs"), Live(tmp_path))


def test_the_user_needs_to_read_only_and_reads_only(new_api, tmp_path, monkeypatch):
    new_api.run("new_api", "CREATE USER reader PASSWORD 'r'; CREATE USER stranger PASSWORD 'r'")
    new_api.run("new_api", "GRANT SELECT ON logs TO reader")
    monkeypatch.setenv("PGPASSWORD", "r")
    address = f"postgres://reader@127.0.0.1:{new_api.port}/new_api"
    assert len(lines_below(fetched(address, Live(tmp_path)))) == 4
    with pytest.raises(UnreadableSourceError, match="GRANT SELECT"):
        fetched(address.replace("reader", "stranger"), Live(tmp_path))
    # A view that writes when it is read.
    new_api.run(
        "new_api",
        "CREATE FUNCTION spoil() RETURNS bigint LANGUAGE sql AS 'DELETE FROM logs RETURNING id'; "
        "CREATE VIEW trap AS SELECT *, spoil() AS quota_data FROM logs; "
        'CREATE VIEW trap2 AS SELECT spoil() AS id, created_at, "type", model_name, quota, prompt_tokens, '
        "completion_tokens FROM logs",
    )
    with pytest.raises(UnreadableSourceError, match="read-only"):
        fetched(new_api.address("new_api", query="?table=trap2"), Live(tmp_path))
    assert len(lines_below(fetched(address, Live(tmp_path / "again")))) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"password": "wr0ng"}, "password is wrong or missing.*PGPASSWORD"),
        ({"database": "absent"}, "no such database or user"),
        ({"query": "?sslmode=require"}, "can't be secured.*sslmode"),
        ({"query": "?nonsense=1"}, "broke off or refuses.*server's log"),
    ],
)
def test_refusals_name_the_server_and_not_the_password(server, tmp_path, change, said):
    address = server.address(**{"database": "postgres", **change})
    with pytest.raises(
        UnreadableSourceError, match=f"^postgresql://127.0.0.1:{server.port}/.*{said}"
    ) as caught:
        fetched(address, Live(tmp_path))
    for secret in (PASSWORD, "wr0ng", "s3cret"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://u:s3cret@127.0.0.1:1/db", "Connection refused"),
        ("postgresql://u:s3cret%zz@127.0.0.1:1/db", "Connection refused"),
        ("postgresql://u:s3cret/@?x@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db: "),
        ("postgresql://u:s3cret@127.0.0.1:s3cre/db", "broke off or refuses"),
    ],
)
def test_wrong_addresses_do_not_show_the_password(tmp_path, address, said):
    pytest.importorskip("adbc_driver_postgresql", reason="the extra `postgres` is not installed")
    with pytest.raises(UnreadableSourceError, match=said) as caught:
        fetched(address, Live(tmp_path))
    assert "s3cret" not in str(caught.value)


def test_without_the_driver_the_remedy_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "adbc_driver_manager", None)
    with pytest.raises(SiteConfigError, match=r"^postgresql://h/db: .*tokenworks\[postgres\]"):
        fetched("postgresql://u:p@h/db", Live(tmp_path))


@pytest.mark.slow
def test_an_audit_leaves_neither_password_nor_rows_of_the_table_behind(new_api, command, tmp_path):
    out = tmp_path / "out"
    done = command("audit", new_api.address("new_api"), "--out", out, "--window", "2026-03-02..2026-03-05")
    assert done.code == 0, done.err
    written = [path for path in out.rglob("*") if path.is_file()]
    assert not [path for path in written if "live" in path.parts[-2]]
    for path in written:
        content = path.read_bytes()
        assert b"s3cret" not in content, path
        assert b"hostile" not in content, path
    document = json.loads((out / "audit.json").read_text())
    assert document["inputs"]["requests"] == 3
    assert f"postgresql://127.0.0.1:{new_api.port}/new_api" in (out / "audit.html").read_text()
    assert "s3cret" not in done.out + done.err
