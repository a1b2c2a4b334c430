"""The page in a real browser, network off: charts are drawn, no script of a log runs, nothing sticks out."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

from reports.audit_json import AuditInputs, audit_document
from reports.decision import decision
from reports.page import render

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)
ATTACK = (
    "</script><script>document.documentElement.dataset.pwned=1</script>"
    "<img src=x onerror=document.documentElement.dataset.pwned=2>"
)


def _browse(address: str, profile: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module", autouse=True)
def _needs_chromium():
    if not Path(CHROMIUM).exists():
        pytest.skip("needs a browser: /usr/bin/chromium is not installed")


def _write(inputs: AuditInputs, folder: Path) -> Path:
    document = audit_document(inputs)
    path = folder / "audit.html"
    path.write_text(render(document, inputs, decision(document)), "utf-8")
    return path


def _attacked(inputs: AuditInputs) -> AuditInputs:
    """The same audit with a worse payload in the names: it marks the document if it ever runs."""

    def worse(frame: pl.DataFrame) -> pl.DataFrame:
        texts = [name for name, kind in frame.schema.items() if kind == pl.String]
        return frame.with_columns(pl.col(texts).str.replace_all(r"</script>.*", ATTACK))

    frames = {
        field.name: worse(getattr(inputs, field.name))
        for field in dataclasses.fields(inputs)
        if isinstance(getattr(inputs, field.name), pl.DataFrame)
    }
    return dataclasses.replace(inputs, title=ATTACK, **frames)


@pytest.mark.parametrize("name", ["week", "trace", "nothing"])
def test_charts_are_drawn_without_an_error_and_without_the_network(name, request, tmp_path):
    path = _write(_attacked(request.getfixturevalue(name)), tmp_path)
    seen = _browse(path.as_uri(), tmp_path / "profile", "--dump-dom")
    root = re.search(r"<html[^>]*>", seen.stdout)
    assert root is not None, seen.stderr[-2000:]
    assert 'data-charts="done"' in root[0]
    assert 'data-failed="0"' in root[0]
    assert "pwned" not in root[0]
    assert "CONSOLE" not in seen.stderr, seen.stderr[-2000:]
    drawn = seen.stdout.count('class="marks"')
    assert drawn == seen.stdout.count("data-chart=")
    assert (drawn > 0) == (name != "nothing")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_scrolls_sideways(width, week, tmp_path):
    """A frame of the given width measures the page inside it."""
    _write(week, tmp_path)
    harness = tmp_path / "harness.html"
    harness.write_text(
        f"<!DOCTYPE html><iframe id=f src=audit.html width={width} height=800 style='border:0'></iframe>"
        "<script>f.onload=()=>setTimeout(()=>{const r=f.contentDocument.documentElement;"
        "document.documentElement.dataset.over=r.scrollWidth-r.clientWidth;"
        "document.documentElement.dataset.first=Math.ceil("
        "f.contentDocument.getElementById('decision').getBoundingClientRect().bottom);"
        "document.documentElement.dataset.charts=r.dataset.charts},8000)</script>",
        "utf-8",
    )
    flags = (
        "--disable-web-security",
        "--allow-file-access-from-files",
        "--window-size=1400,900",
        "--dump-dom",
    )
    seen = _browse(harness.as_uri(), tmp_path / "profile", *flags)
    root = re.search(r"<html[^>]*>", seen.stdout)
    assert root is not None, seen.stderr[-2000:]
    assert 'data-charts="done"' in root[0], root[0]
    assert 'data-over="0"' in root[0], root[0]
    bottom = re.search(r'data-first="(\d+)"', root[0])
    assert bottom is not None
    if width == 1280:  # the decision and its two charts are the first screen
        assert int(bottom[1]) <= 800


def test_it_prints(week, tmp_path):
    path = _write(week, tmp_path)
    pdf = tmp_path / "audit.pdf"
    _browse(path.as_uri(), tmp_path / "profile", f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pdf.stat().st_size > 50_000
