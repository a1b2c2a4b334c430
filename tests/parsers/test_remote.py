"""Files of a web server and objects of S3, GCS and Azure, from a small server of each kind on 127.0.0.1."""

from __future__ import annotations

import gzip
import io
import json
import sys
import threading
import time
import zipfile
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request

import polars as pl
import pytest

from parsers import live, web
from parsers.errors import SiteConfigError, UnreadableSourceError
from parsers.live import Live, is_address, shown
from parsers.sources import find_sources, open_source

CHANGED = datetime(2026, 3, 2, 10, tzinfo=UTC)
HTTP_DATE = "Mon, 02 Mar 2026 10:00:00 GMT"


def zipped(name, content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content)
    return out.getvalue()


def parquet():
    out = io.BytesIO()
    pl.DataFrame({"a": [1]}).write_parquet(out)
    return out.getvalue()


OBJECTS = {
    "logs/a.jsonl": b'{"n": 1}\n',
    "logs/day=1/b.jsonl.gz": gzip.compress(b'{"n": 2}\n'),
    "logs/day=1/deep/c@home.jsonl": b'{"n": 3}\n',
    "logs/day=2/d.zip": zipped("inner.jsonl", b'{"n": 4}\n'),
    "logs/day=2/e.parquet": parquet(),
    "logs/.hidden/f.jsonl": b"no",
    "logs/.part": b"no",
    "logs/../../up.jsonl": b'{"n": 5}\n',
}


class Handler(BaseHTTPRequestHandler):
    """As much of the protocols as readers use."""

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content_Length": len(body), "Last_Modified": HTTP_DATE, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        parts = urlsplit(self.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        self.server.asked.append(self.headers["Authorization"])
        if path.startswith("/storage/v1/b/"):
            self.gcs(path, query)
        elif path.startswith("/account/"):
            self.azure(path.removeprefix("/account/"), query)
        elif path.startswith("/web/"):
            self.web(path.removeprefix("/web/"), query)
        elif path.startswith("/denied"):
            self.answer(403, b"<Error><Code>AccessDenied</Code><Message>s3cret</Message></Error>")
        else:
            self.s3(path, query)

    do_HEAD = do_GET  # noqa: N815 - as http.server names it

    def web(self, name, query):
        if name == "cut.jsonl":
            self.answer(200, b"{}", Content_Length=100)
            self.close_connection = True
        elif name == "signed.jsonl" and query.get("signature") != ["s3cret"]:
            self.answer(403)
        elif name == "busy":
            self.answer(503)
        elif (content := OBJECTS.get("logs/" + name.replace("signed", "a"))) is None:
            self.answer(404)
        else:
            self.answer(200, content)

    def s3(self, path, query):
        bucket, _, key = path.strip("/").partition("/")
        if "list-type" in query:
            prefix = query.get("prefix", [""])[0]
            found = "".join(
                f"<Contents><Key>{name}</Key><Size>{len(content)}</Size>"
                "<LastModified>2026-03-02T10:00:00.000Z</LastModified></Contents>"
                for name, content in OBJECTS.items()
                if name.startswith(prefix)
            )
            body = f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
            self.answer(200, body.encode(), Content_Type="application/xml")
        else:
            self.content(OBJECTS.get(key))

    def gcs(self, path, query):
        key = path.removeprefix("/storage/v1/b/").partition("/o")[2].lstrip("/")
        entries = [
            {
                "kind": "storage#object",
                "name": name,
                "bucket": "bucket",
                "generation": "1",
                "size": str(len(content)),
                "updated": "2026-03-02T10:00:00.000Z",
                "timeCreated": "2026-03-02T10:00:00.000Z",
            }
            for name, content in OBJECTS.items()
            if name == key or not key
        ]
        if key and query.get("alt") == ["media"]:
            self.content(OBJECTS.get(key))
        elif key:
            self.answer(200 if entries else 404, json.dumps(entries[0] if entries else {}).encode())
        else:
            prefix = query.get("prefix", [""])[0]
            items = [entry for entry in entries if entry["name"].startswith(prefix)]
            self.answer(200, json.dumps({"kind": "storage#objects", "items": items}).encode())

    def azure(self, path, query):
        key = path.partition("/")[2]
        if "action" in query:
            self.answer(409, x_ms_error_code="HierarchicalNamespaceNotEnabled")
        elif query.get("comp") == ["list"]:
            prefix, entries = query["prefix"][0], {}
            for name, content in OBJECTS.items():
                if name.startswith(prefix):
                    first, is_folder, _ = name.removeprefix(prefix).partition("/")
                    entries[prefix + first + is_folder] = (
                        f"<BlobPrefix><Name>{prefix}{first}/</Name></BlobPrefix>"
                        if is_folder
                        else f"<Blob><Name>{name}</Name><Properties><Content-Length>{len(content)}</Content-Length>"
                        f"<Last-Modified>{HTTP_DATE}</Last-Modified><BlobType>BlockBlob</BlobType></Properties></Blob>"
                    )
            found = "".join(list(entries.values())[: int(query.get("maxresults", ["999"])[0])])
            body = f"<EnumerationResults ContainerName='bucket'><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>"
            self.answer(200, body.encode(), Content_Type="application/xml")
        else:
            self.content(
                OBJECTS.get(key),
                ETag='"x"',
                x_ms_blob_type="BlockBlob",
                x_ms_creation_time=HTTP_DATE,
                x_ms_server_encrypted="true",
            )

    def content(self, content, **headers):
        if content is None:
            self.answer(404)
        elif (wanted := self.headers.get("Range") or self.headers.get("x-ms-range")) is None:
            self.answer(200, content, **headers)
        else:
            first, last = (int(part or len(content)) for part in wanted.removeprefix("bytes=").split("-"))
            part = content[first : last + 1]
            place = f"bytes {first}-{first + len(part) - 1}/{len(content)}"
            self.answer(206, part, Content_Range=place, **headers)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def server():
    with serving() as found:
        yield found


@pytest.fixture
def host(server):
    server.asked.clear()
    return f"127.0.0.1:{server.server_address[1]}"


@pytest.fixture
def stores(host, monkeypatch):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "AWS_EC2_METADATA_DISABLED": "true",
        "STORAGE_EMULATOR_HOST": f"http://{host}",
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
        "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
        "AZURE_STORAGE_ENDPOINT": f"http://{host}",
    }.items():
        monkeypatch.setenv(name, value)
    return host


def contents(sources):
    found = {}
    for source in sources:
        with open_source(source) as stream:
            found[source.name] = stream.read()
    return found


def test_files_of_a_web_server_are_read_like_files(host, tmp_path):
    names = ["a.jsonl", "day=1/b.jsonl.gz", "day=2/d.zip", "day=2/e.parquet"]
    sources = find_sources([f"http://{host}/web/{name}" for name in names], Live(tmp_path))
    found = contents(sources)
    assert found[f"http://{host}/web/a.jsonl"] == b'{"n": 1}\n'
    assert found[f"http://{host}/web/day=1/b.jsonl.gz"] == b'{"n": 2}\n'
    assert found[f"http://{host}/web/day=2/d.zip!inner.jsonl"] == b'{"n": 4}\n'
    assert found[f"http://{host}/web/day=2/e.parquet"] == OBJECTS["logs/day=2/e.parquet"]
    assert {source.modified_at for source in sources} == {CHANGED}
    assert all(source.path.is_relative_to(tmp_path) for source in sources)


def test_what_signs_an_address_is_not_shown(host, tmp_path):
    address = f"http://{host}/web/signed.jsonl?signature="
    (source,) = find_sources([f"{address}s3cret#x"], Live(tmp_path))
    assert source.name == f"http://{host}/web/signed.jsonl"
    with pytest.raises(UnreadableSourceError, match=r"HTTP 403.*signed") as caught:
        find_sources([f"{address}wrong"], Live(tmp_path))
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("absent.jsonl", UnreadableSourceError, "no such object"),
        ("busy", UnreadableSourceError, "HTTP 503"),
        ("cut.jsonl", UnreadableSourceError, r"broke off \(.*Incomplete|2 of 100 bytes"),
        ("*.jsonl", SiteConfigError, "does not list its files"),
    ],
)
def test_refusals_of_a_web_server_are_told(host, tmp_path, path, kind, said):
    with pytest.raises(kind, match=rf"http://{host}/web/.*({said})"):
        find_sources([f"http://{host}/web/{path}"], Live(tmp_path))


def test_a_server_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UnreadableSourceError, match=r"http://127.0.0.1:1/x: .*refused"):
        find_sources(["http://127.0.0.1:1/x"], Live(tmp_path))
    with pytest.raises(UnreadableSourceError, match=r"http://\[::1\]:1/x: .*can't be reached"):
        find_sources(["http://[::1]:1/x"], Live(tmp_path))


def test_endless_answers_end(host, tmp_path, monkeypatch):
    monkeypatch.setattr(live, "MAX_BYTES", 5)
    with pytest.raises(UnreadableSourceError, match="larger than 5 bytes"):
        find_sources([f"http://{host}/web/a.jsonl"], Live(tmp_path))


EVERYTHING = [
    *("logs/a.jsonl", "logs/day=1/b.jsonl.gz", "logs/day=1/deep/c@home.jsonl"),
    *("logs/day=2/d.zip!inner.jsonl", "logs/day=2/e.parquet"),
]


@pytest.mark.parametrize("store", ["s3", "gs", "az"])
@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("logs/a.jsonl", EVERYTHING[:1]),
        ("logs/day=1/deep/c@home.jsonl", EVERYTHING[2:3]),
        ("logs/*.jsonl", EVERYTHING[:1]),
        ("logs/day=?/*", [*EVERYTHING[1:2], *EVERYTHING[3:]]),
        ("logs/**/*.jsonl*", EVERYTHING[:3]),
        ("logs/day=[2-9]/**", EVERYTHING[3:]),
    ],
)
def test_objects_are_named_by_address_or_glob(stores, tmp_path, store, path, names):
    sources = find_sources([f"{store}://bucket/{path}"], Live(tmp_path))
    assert [source.name for source in sources] == [f"{store}://bucket/{name}" for name in names]
    assert {source.modified_at for source in sources} == {CHANGED}


def test_objects_below_a_folder_are_all_read_and_none_leaves_the_spool(stores, tmp_path):
    folder = tmp_path / "data/live"
    sources = find_sources(["s3://bucket/logs/"], Live(folder))
    found = contents(sources)
    assert found["s3://bucket/logs/a.jsonl"] == b'{"n": 1}\n'
    assert found["s3://bucket/logs/day=1/b.jsonl.gz"] == b'{"n": 2}\n'
    assert {name.removeprefix("s3://bucket/") for name in found} >= set(EVERYTHING)
    assert not [name for name in found if "hidden" in name or name.endswith(".part")]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.parent == folder for path in written)


def test_the_credentials_are_the_environments_and_stay_out_of_addresses(server, stores, tmp_path):
    find_sources(["s3://bucket/logs/a.jsonl"], Live(tmp_path))
    assert all("Credential=key/" in authorization for authorization in server.asked)
    for address in ("s3://key:s3cret@bucket/x", "https://u:s3cret@h/x"):
        with pytest.raises(SiteConfigError, match="holds credentials") as caught:
            find_sources([address], Live(tmp_path))
        assert "s3cret" not in str(caught.value)


def test_refusals_of_a_store_are_told(stores, tmp_path, monkeypatch):
    with pytest.raises(
        UnreadableSourceError, match=r"^s3://denied/x: .*ACCESS_DENIED.*AWS_PROFILE"
    ) as caught:
        find_sources(["s3://denied/x"], Live(tmp_path))
    assert "s3cret" not in str(caught.value)
    for path in ("absent.jsonl", "logs/*.none"):
        with pytest.raises(UnreadableSourceError, match=r"no such object or folder\. Check"):
            find_sources([f"s3://bucket/{path}"], Live(tmp_path))
    for address in ("s3://", "s3:///logs/x"):
        with pytest.raises(SiteConfigError, match="names no bucket"):
            find_sources([address], Live(tmp_path))
    with pytest.raises(SiteConfigError, match="no pattern"):
        find_sources(["s3://buck*/x"], Live(tmp_path))
    monkeypatch.setenv("AWS_ENDPOINT_URL", stores)
    with pytest.raises(SiteConfigError, match=r"AWS_ENDPOINT_URL: .*https://minio:9000"):
        find_sources(["s3://bucket/x"], Live(tmp_path))
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SiteConfigError, match=r"^az://: .*AZURE_STORAGE_ACCOUNT_NAME"):
        find_sources(["az://container/x"], Live(tmp_path))


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("-", "stdin"),
        ("./-", "./-"),
        ("logs/s3://x", "logs/s3://x"),
        ("HTTPS://h/a@b.jsonl?sig=1#f", "https://h/a@b.jsonl"),
        ("http://h:8080/a@b.jsonl", "http://h:8080/a@b.jsonl"),
        ("http://[::1]:8080/a@b.jsonl", "http://[::1]:8080/a@b.jsonl"),
        ("https://u:p@h/log", "https://h/log"),
        ("https://u:p@x/y@h/log", "https://h/log"),
        ("https://u:p/x?y#z@h/log?sig=1", "https://h/log"),
        ("prometheus+https://u:p/x@h:9090", "prometheus+https://h:9090"),
        ("postgresql://u:a/b?c@d@host:5432/db?sslmode=require", "postgresql://host:5432/db"),
        ("prometheus+http://h:9090/p?step=60", "prometheus+http://h:9090/p"),
    ],
)
def test_addresses_are_told_from_paths_and_shown_without_secrets(given, seen):
    assert shown(given) == seen
    assert is_address(given) == (given == "-" or (":/" in given and not given.startswith("logs")))


def test_standard_input_is_spooled(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"\xff\n"))))
    (source,) = find_sources(["-", "-"], Live(tmp_path))
    assert contents([source]) == {"stdin": b"\xff\n"}
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UnreadableSourceError, match=r"stdin: .*Pipe a log"):
        find_sources(["-"], Live(tmp_path))


@contextmanager
def answering(answer):
    """A web server that answers each GET as it is told."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def redirecting(target):
    def answer(handler):
        handler.send_response(302)
        handler.send_header("Location", target)
        handler.end_headers()

    return answer


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"])
def test_a_redirect_does_not_leave_the_web(tmp_path, target):
    with (
        answering(redirecting(target)) as server,
        pytest.raises(UnreadableSourceError, match=r"redirects|refuses"),
    ):
        find_sources([f"{server}/log"], Live(tmp_path))


def test_a_redirect_to_another_host_is_followed_and_one_to_an_open_connection_is_not(tmp_path, host):
    with answering(redirecting(f"http://{host}/web/a.jsonl")) as server:
        (source,) = find_sources([f"{server}/log"], Live(tmp_path))
    assert contents([source]) == {f"{server}/log": OBJECTS["logs/a.jsonl"]}
    request = Request("https://h/log")
    with pytest.raises(URLError, match="redirects from https to http"):
        web._Redirects().redirect_request(request, io.BytesIO(), 302, "", {}, "http://h/log")


def drip(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return


def drip_head(handler):
    try:
        for _ in range(200):
            handler.wfile.write(b"H")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return


def test_a_server_whose_head_drips_is_given_up(tmp_path, monkeypatch):
    """No single read times out, and 64 KB of a line came at a byte a second."""
    assert web.ANSWER_S == 240
    monkeypatch.setattr(web, "ANSWER_S", 0.3)
    with (
        answering(drip_head) as server,
        pytest.raises(UnreadableSourceError, match=r"no answer within 0\.3 s"),
    ):
        find_sources([f"{server}/log"], Live(tmp_path))


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [("TIMEOUT_S", 0.3, "less than 1,024 bytes a second"), ("MAX_DOWNLOAD_S", 0, "for more than 0 hours")],
)
def test_a_server_that_drips_or_never_ends_is_given_up(tmp_path, monkeypatch, bound, value, said):
    assert (web.TIMEOUT_S, web.MAX_DOWNLOAD_S) == (120, 6 * 3600)
    monkeypatch.setattr(web, bound, value)
    with answering(drip) as server, pytest.raises(UnreadableSourceError, match=said):
        find_sources([f"{server}/log"], Live(tmp_path))
