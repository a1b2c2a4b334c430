"""The pages say what the code does: generated ones are fresh, and every command they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsers.errors import TokenworksError
from parsers.mapping import load_mapping
from pipelines import cli
from pipelines.fleet import Pool, Site, Slo, load_fleet
from pipelines.reference_docs import DOCS, PAGES, exit_codes

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMANDS = [info.callback for info in cli.app.registered_commands]
TARGETS = set(
    re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
)


@pytest.mark.parametrize("name", PAGES)
def test_reference_pages_are_fresh(name):
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_every_command_has_help_and_stands_in_the_pages(command):
    assert command.__doc__
    name = f"tokenworks {command.__name__}"
    assert any(name in path.read_text(encoding="utf-8") for path in WRITTEN if path.parent != DOCS), name


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_in_the_pages_exist(path):
    text = path.read_text(encoding="utf-8")
    code = "\n".join(
        re.findall(r"```[a-z]*\n(.*?)```", text, flags=re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    )
    for target in re.findall(r"^make ([a-z-]+)", code, flags=re.MULTILINE):
        assert target in TARGETS, f"make {target}"
    known = {command.__name__ for command in COMMANDS}
    for name in re.findall(r"^(?:\.venv/bin/)?tokenworks ([a-z]+)", code, flags=re.MULTILINE):
        assert name in known, f"tokenworks {name}"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / link).exists(), link


def test_the_readme_begins_with_two_commands_that_need_nothing_before():
    """Each sets up what it needs by itself."""
    first = re.search(r"```[a-z]*\n(.*?)```", README, flags=re.DOTALL)
    assert first is not None
    assert [line.split("#")[0].strip() for line in first[1].splitlines()] == ["make week", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("week", "test"):
        assert re.search(rf"^{target}: \$\(SYNCED\)", makefile, flags=re.MULTILINE), target


def test_every_exit_code_of_an_error_is_listed():
    def kinds(root):
        yield root
        for kind in root.__subclasses__():
            yield from kinds(kind)

    codes = {kind.exit_code for kind in kinds(TokenworksError)} | {cli.INTERNAL_FAULT, cli.INTERRUPTED, 0, 2}
    assert codes <= exit_codes().keys()


def test_pages_name_nothing_of_the_place_they_were_written_in():
    """No paths of a home or work folder, and no address of a machine."""
    for path in WRITTEN:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/home/|/root/|/work/|/tmp/|localhost:\d|\b10\.\d+\.\d+\.\d+", text), path


def test_the_fleet_file_of_the_readme_can_be_read(tmp_path):
    shown = re.search(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    assert shown is not None
    path = tmp_path / "fleet.toml"
    path.write_text(shown[1], encoding="utf-8")
    assert load_fleet(path).pool_of("llama-3.3-70b-instruct") is not None


SITE_FILES = (ROOT / "docs" / "site-files.md").read_text(encoding="utf-8")


def test_every_key_of_the_fleet_file_is_explained():
    for section in (Site, Slo, Pool):
        for key in section.model_fields:
            assert f"`{key}` |" in SITE_FILES, key


def test_the_mapping_file_of_the_page_can_be_read(tmp_path):
    shown = re.search(r"```toml\n(.*?)```", SITE_FILES, flags=re.DOTALL)
    assert shown is not None
    path = tmp_path / "our_proxy.toml"
    path.write_text(shown[1], encoding="utf-8")
    assert load_mapping(path).name == "mapping_our_proxy"
