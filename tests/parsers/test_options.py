"""The options that the user may set are those that mappings read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import parsers
from parsers.errors import SiteConfigError
from parsers.options import OPTIONS, checked

READ = re.compile(r"""["'](\w+)["']\s+in\s+context\.options|context\.options(?:\.get\(|\[)["'](\w+)["']""")


def test_every_option_that_is_read_is_known_and_the_other_way_round():
    texts = [path.read_text(encoding="utf-8") for path in Path(parsers.__file__).parent.rglob("*.py")]
    read = {found[0] or found[1] for text in texts for found in READ.findall(text)}
    assert read == set(OPTIONS)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("timezone", "Europe/Berlin", "Mars/X"),
        ("year", "2026", "26"),
        ("origin", "2026-03-02T00:00:00Z", "monday"),
        ("interval_s", "0.5", "-1"),
        ("block_size", "16", "many"),
        ("columns", "timestamp,power.draw", "power"),
    ],
)
def test_values_are_checked_before_anything_is_read(name, good, bad):
    assert checked({name: good, "instance": "gpu-1"}, "") == {name: good, "instance": "gpu-1"}
    with pytest.raises(SiteConfigError, match=f"^SET {name}: '{bad}' is not "):
        checked({name: bad}, "SET ")


def test_an_unknown_name_is_told_with_those_there_are():
    with pytest.raises(
        SiteConfigError, match=r"SET zone: there is no option zone\. There are: timezone, year"
    ):
        checked({"zone": "UTC"}, "SET ")
