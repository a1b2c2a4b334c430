"""Asking web servers, within bounds.

Belongs here: redirects, and what an answer may take in time and bytes. Does not belong here: what is asked (`remote.py`,
`live_prometheus.py`).
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, cast
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from parsers.live import broken_off, spool

if TYPE_CHECKING:
    from http.client import HTTPMessage, HTTPResponse
    from pathlib import Path

TIMEOUT_S = 120
"""Of one read from a server."""
ANSWER_S = 2 * TIMEOUT_S
"""Until the head of an answer is there, redirects included: a head that drips never lets a single read time out."""
MAX_DOWNLOAD_S = 6 * 3600
LEAST_BYTES_PER_S = 1024
"""Of an answer as a whole, once it has lasted for TIMEOUT_S."""


def asked(request: Request) -> HTTPResponse:
    """The answer of a web server.

    It is followed to other hosts, as stores redirect to their parts, but only to the web, and never from a guarded
    connection to an open one.

    Raises:
        HTTPError, OSError, HTTPException, ValueError: it can't be reached, refuses, or takes longer than ANSWER_S.

    """
    answers: SimpleQueue[HTTPResponse | Exception] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(cast("HTTPResponse", build_opener(_Redirects).open(request, timeout=TIMEOUT_S)))
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            answers.put(error)

    # No read may wait for longer than TIMEOUT_S, but nothing bounds their number. The process does not wait for it.
    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_S)
    except Empty:
        raise URLError(f"no answer within {ANSWER_S} s") from None
    if not isinstance(answer, Exception):
        return answer
    try:
        raise answer
    finally:
        # It would hold itself, and a connection, through its own traceback.
        del answer


class _Redirects(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        before, behind = (address.partition(":")[0].lower() for address in (req.full_url, newurl))
        if behind not in ("http", "https") or (before, behind) == ("https", "http"):
            raise URLError(f"it redirects from {before} to {behind}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(answer: HTTPResponse, path: Path, name: str) -> None:
    """Write the answer of a web server into a file.

    Raises:
        UnreadableSourceError: it is larger than MAX_BYTES, takes longer than MAX_DOWNLOAD_S, comes more slowly than
            LEAST_BYTES_PER_S after the first TIMEOUT_S, or less came than was announced.

    """
    spool(_InTime(answer, name), path, name)
    expected, size = answer.headers.get("Content-Length", ""), path.stat().st_size
    if expected.isdecimal() and size != int(expected):
        raise broken_off(name, f"{size:,} of {int(expected):,} bytes came")


class _InTime:
    """The body of an answer, as long as it comes fast enough. A server that drips never lets a single read time out."""

    def __init__(self, answer: HTTPResponse, name: str) -> None:
        self._answer, self._name = answer, name
        self._size, self._began = 0, time.monotonic()

    def read(self, size: int) -> bytes:
        # Not `read`: it would wait until all of these bytes are there.
        block = self._answer.read1(size)
        self._size += len(block)
        lasted_s = time.monotonic() - self._began
        if lasted_s > MAX_DOWNLOAD_S:
            raise broken_off(self._name, f"it sent for more than {MAX_DOWNLOAD_S // 3600} hours")
        if block and lasted_s > TIMEOUT_S and self._size < lasted_s * LEAST_BYTES_PER_S:
            raise broken_off(self._name, f"it sent less than {LEAST_BYTES_PER_S:,} bytes a second")
        return block
