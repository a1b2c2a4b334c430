"""Samples asked of a running Prometheus (or Thanos, Mimir, VictoriaMetrics), written down as files.

Belongs here: the address, the questions, the errors of the server. Does not belong here: reading the answers
(`formats/prometheus_query_range.py`), which metrics there are (`metrics.py`).

An address is `prometheus+http://host:9090/prefix?step=15` (or `+https`); `step` in seconds is optional. A token for
the server comes from the environment, not from the address, which is shown in reports.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, responses
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit
from urllib.request import Request

from parsers.errors import DISK_TROUBLE, NothingToAuditError, SiteConfigError, UnreadableSourceError
from parsers.live import broken_off, shown, without_credentials
from parsers.web import asked, download

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.live import Live

TOKEN_VARIABLE = "TOKENWORKS_PROMETHEUS_TOKEN"  # noqa: S105 - its name, not its value
_SCHEMES = {"prometheus+http": "http", "prometheus+https": "https"}
_DEFAULT_WINDOW = timedelta(days=7)
_DEFAULT_STEP_S = 15
_PIECE_POINTS = 1440
"""Points per series in one answer: far below Prometheus's limit of 11,000, so that a large fleet's answer stays small."""
_MINUTE = "%Y-%m-%dT%H:%MZ"
_MAX_MESSAGE_BYTES = 65_536


def fetched(address: str, live: Live) -> Path:
    """Ask the server for the declared metrics, piece by piece of the window; the folder of the answers.

    Pieces begin at multiples of their length, so that asking again for what has been asked gives the same files.

    Raises:
        SiteConfigError: the address is wrong.
        UnreadableSourceError: the server can't be reached, refuses, or does not answer like Prometheus.
        NothingToAuditError: it has none of the metrics in the window.

    """
    server, step_s = _read_address(address)
    end = datetime.now(UTC)
    window = live.window or (end - _DEFAULT_WINDOW, end)
    folder = live.folder / re.sub(r"[^\w.-]+", "_", f"{server.netloc}{server.path}".strip("/"))
    folder.mkdir(parents=True, exist_ok=True)
    written, selectors = set(), _selectors()
    for start_s, end_s in _pieces(window, step_s):
        for table, selector in selectors.items():
            began = datetime.fromtimestamp(start_s, UTC).strftime("%Y-%m-%dT%H%M%SZ")
            path = folder / f"{table}-{began}-{step_s}s.json"
            question = {"query": selector, "start": start_s, "end": end_s, "step": step_s}
            if _write_answer(server, question, path):
                written.add(path.name)
    for path in folder.iterdir():
        if path.name not in written:
            path.unlink()
    if not written:
        raise NothingToAuditError(
            f"the server has no metric of an engine or a device in {window[0]:{_MINUTE}}..{window[1]:{_MINUTE}}",
            where=_shown(server),
            remedy="Check the window (--window START..END), and that the server scrapes the engines.",
        )
    return folder


def _read_address(address: str) -> tuple[SplitResult, int]:
    rest = address.partition("://")[2]
    if without_credentials(rest) != rest:
        raise SiteConfigError(
            "the address of a Prometheus holds credentials",
            where=shown(address),
            remedy=f"Leave them out, and set {TOKEN_VARIABLE} to a bearer token.",
        )
    try:
        parts = urlsplit(address)
    except ValueError as error:
        raise _wrong(address) from error
    server = parts._replace(scheme=_SCHEMES[parts.scheme], query="", fragment="")
    step = parse_qs(parts.query).get("step", [str(_DEFAULT_STEP_S)])[0].removesuffix("s")
    if not parts.hostname or not re.fullmatch(r"[1-9]\d{0,4}", step):
        raise _wrong(address)
    return server, int(step)


def _wrong(address: str) -> SiteConfigError:
    return SiteConfigError(
        "the address of a Prometheus is wrong",
        where=shown(address),
        remedy="Write it like prometheus+http://host:9090 or prometheus+http://host:9090/?step=60 (seconds).",
    )


def _pieces(window: tuple[datetime, datetime], step_s: int) -> Iterator[tuple[int, int]]:
    """First and last instant (unix seconds) of each question; no instant is in two."""
    first, stop = (-int(-instant.timestamp() // step_s) * step_s for instant in window)
    length = _PIECE_POINTS * step_s
    while first < stop:
        after = min(stop, first - first % length + length)
        yield first, after - step_s
        first = after


def _selectors() -> dict[str, str]:
    """By table: PromQL that selects the series of all its metrics."""
    from parsers.metrics import METRICS, spellings

    names = {
        table: sorted({name for m in known for name in spellings(m)}) for table, known in METRICS.items()
    }
    return {table: f'{{__name__=~"{"|".join(spelled)}"}}' for table, spelled in names.items()}


def _write_answer(server: SplitResult, question: dict[str, object], path: Path) -> bool:
    """Write down an answer; whether there is anything in it."""
    part = path.with_name(f".{path.name}.part")
    request = Request(  # noqa: S310 - http or https, see _SCHEMES
        f"{server.geturl().rstrip('/')}/api/v1/query_range", data=urlencode(question).encode()
    )
    if token := os.environ.get(TOKEN_VARIABLE):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with asked(request) as answer:
            download(answer, part, _shown(server))
    except HTTPError as error:
        raise _refusal(server, error) from error
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
            raise
        # What is wrong with a header (ValueError) would repeat the token.
        reason = "" if isinstance(error, ValueError) else getattr(error, "reason", "")
        raise broken_off(_shown(server), str(reason or type(error).__name__)) from error
    with part.open("rb") as stream:
        start = stream.read(4096).lstrip()
    if not re.match(rb'\{\s*"status"\s*:\s*"success"', start):
        part.unlink()
        raise UnreadableSourceError(
            "the server does not answer like Prometheus",
            where=_shown(server),
            remedy="Give the address under which /api/v1/query_range is, with its prefix.",
        )
    if re.search(rb'"result"\s*:\s*\[\s*\]', start):
        part.unlink()
        return False
    part.replace(path)
    return True


def _refusal(server: SplitResult, error: HTTPError) -> UnreadableSourceError:
    """What the server objects to, in its class of error; the message would repeat the question."""
    try:
        kind = str(json.loads(error.read(_MAX_MESSAGE_BYTES))["errorType"])[:40]
    except (ValueError, LookupError, TypeError, OSError, HTTPException):
        kind = responses.get(error.code, "no reason known")
    remedy = "Check the address and the server's log."
    if error.code in {401, 403}:
        remedy = f"Set {TOKEN_VARIABLE} to a bearer token that the server accepts."
    elif error.code in {422, 503, 504}:
        remedy = "Ask for less: a larger step (?step=60 behind the address) or a shorter --window."
    elif error.code in {404, 405}:
        remedy = "Give the address under which /api/v1/query_range is, with its prefix."
    return UnreadableSourceError(
        f"the server refuses the question (HTTP {error.code}, {kind})", where=_shown(server), remedy=remedy
    )


def _shown(server: SplitResult) -> str:
    return server.geturl()
