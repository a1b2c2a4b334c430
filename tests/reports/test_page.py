"""The page as text: self-contained, escaped, whole for rich and poor inputs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import duckdb
import polars as pl
import pytest

from parsers.records import REQUESTS
from reports import page_strings
from reports.audit_json import audit_document
from reports.charts import MAX_POINTS, binned_max
from reports.decision import decision
from reports.definitions import DEFINITIONS
from reports.page import embedded, render
from tests.reports.conftest import HOSTILE
from warehouse.tables import MARTS


class _Outline(HTMLParser):
    """What a browser would see: ids, links, tags, scripts, attributes that load something."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.tags, self.loads, self.handlers = [], [], [], [], []
        self.scripts, self.specs, self.policy, self._inside = [], {}, "", None

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.handlers += [name for name in found if name.startswith("on")]
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        self.loads += [found[name] for name in ("src", "srcset", "data", "action") if name in found]
        if tag == "link":
            self.loads.append(found.get("href"))
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        if tag == "script":
            self._inside = (found.get("type", ""), found.get("id", ""))

    def handle_data(self, data):
        if self._inside is None:
            return
        kind, name = self._inside
        if kind == "application/json":
            self.specs[name] = data
        else:
            self.scripts.append(data)

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None


def _page(inputs):
    document = audit_document(inputs)
    text = render(document, inputs, decision(document))
    outline = _Outline()
    outline.feed(text)
    return text, outline


@pytest.fixture(scope="module", params=["week", "nothing", "trace", "engine_only"])
def page(request):
    return (request.param, *_page(request.getfixturevalue(request.param)))


def test_it_asks_for_nothing_and_weighs_under_5_mb(page):
    _, text, outline = page
    assert outline.loads == []
    assert all(link.startswith("#") for link in outline.links)
    assert "url(" not in re.sub(r"url\(#hatch\)", "", text[: text.index("<script>")])
    assert len(text.encode()) < 5_000_000


def test_the_policy_forbids_the_network_and_all_scripts_but_the_two(page):
    _, _, outline = page
    assert "default-src 'none'" in outline.policy
    assert "unsafe-eval" not in outline.policy
    assert len(outline.scripts) == 2
    for script in outline.scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in outline.policy


def test_names_from_logs_make_no_tag_and_no_handler(page):
    _, text, outline = page
    assert "img" not in outline.tags
    assert outline.handlers == []
    assert "<img" not in text[: text.index("<script>")]  # what follows is the library
    assert "\u2028" not in "".join(outline.specs.values())
    for spec in outline.specs.values():
        assert "<" not in spec
        json.loads(spec)


def test_embedded_json_cannot_end_its_block():
    value = {"a</script><!--": "\u2028\u2029<>&"}
    text = str(embedded(value))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"a</script><!--": "\\u2028\\u2029<>&"}


def test_no_character_of_a_name_hides_or_reorders_the_page(page):
    _, text, outline = page
    own = text[: text.index("<script>")]
    assert {char for char in own if not char.isprintable()} <= {"\n"}
    for spec in outline.specs.values():
        assert not re.search(r"\\u(?:00[01]|007f|20[02]|206)", spec.replace("\\\\u", ""))


def test_sections_stand_in_order_and_every_link_has_its_anchor(page):
    _, _, outline = page
    sections = [name for name in outline.ids if name in page_strings.SECTIONS]
    assert sections == list(page_strings.SECTIONS)
    assert len(outline.ids) == len(set(outline.ids))
    assert {link[1:] for link in outline.links} <= set(outline.ids)


def test_every_definition_is_on_the_page(page):
    _, _, outline = page
    assert {f"def-{definition.anchor}" for definition in DEFINITIONS} <= set(outline.ids)


def test_the_rows_behind_every_definition_can_be_listed():
    """Its SQL names tables and columns that are there."""
    with duckdb.connect() as connection:
        for table in (REQUESTS, *MARTS):
            connection.register(table.name, table.empty().to_arrow())
        for definition in DEFINITIONS:
            if definition.rows:
                connection.sql(definition.rows).fetchall()
    assert sum(not definition.rows for definition in DEFINITIONS) < 8


def test_every_figure_of_the_first_screen_links_to_its_definition(page):
    _, text, _ = page
    first = text[text.index('<section id="decision">') : text.index('<div class="pair">')]
    bare = re.sub(r"<a [^>]*>.*?</a>|<h1>.*?</h1>", "", first, flags=re.DOTALL)
    bare = re.sub(r'<p class="(caveat|sure)">.*?</p>', "", bare, flags=re.DOTALL)
    assert not re.search(r"\d", re.sub(r"<[^>]*>", "", bare))


def test_every_chart_has_a_table_twin_and_no_series_is_too_long(page):
    name, text, outline = page
    assert text.count('<details class="twin"') == len(outline.specs)
    assert bool(outline.specs) == (name != "nothing")
    for spec in outline.specs.values():
        assert all(len(rows) <= 3 * MAX_POINTS for rows in json.loads(spec)["datasets"].values())


def test_what_can_not_be_drawn_is_said(nothing):
    text, outline = _page(nothing)
    assert not outline.specs
    for sentence in ("No series: demand per minute is unknown.", "No files were read.", "unknown"):
        assert sentence in text
    assert "None" not in re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)


def test_the_week_has_every_chart(week):
    _, outline = _page(week)
    assert {name.removeprefix("spec-") for name in outline.specs} == set(page_strings.ABSENT)


def test_an_estimate_carries_its_reason(week):
    text, _ = _page(week)
    for reason in (
        page_strings.ESTIMATE["modelled_power"],
        page_strings.ESTIMATE["option"],
        page_strings.ESTIMATE["bound"],
    ):
        assert f'title="{html.escape(reason)}">est.' in text


def test_money_stands_by_key_and_names_idle_hardware(week):
    lines = week.cost_lines.with_columns(
        api_key_alias=pl.when(pl.col("team").is_not_null()).then(pl.lit(f"batch{HOSTILE}"))
    )
    text, _ = _page(replace(week, cost_lines=lines))
    assert "<h3>By API key</h3>" in text
    assert "no key, idle hardware included" in text
    assert f"batch{HOSTILE}" not in text


def test_findings_carry_the_sql_of_their_rows(week):
    text, outline = _page(week)
    assert "rows-1" in outline.ids
    assert "SELECT * FROM requests WHERE team" in text


def test_thinning_keeps_the_highest_minute(week):
    minutes = week.demand_minute.filter(week.demand_minute["scope"] == "all").sort("minute_at")
    thinned, step = binned_max(minutes, "minute_at", ["requests"])
    assert thinned.height <= MAX_POINTS
    assert step == 11
    assert thinned["requests"].max() == minutes["requests"].max()


def test_every_chart_is_valid_vega_lite(week, trace):
    """The page is made without Altair's own check, which takes as long as all else of it."""
    import altair as alt

    for inputs in (week, trace):
        document = audit_document(inputs)
        outline = _Outline()
        outline.feed(render(document, inputs, decision(document)))
        assert outline.specs
        for spec in outline.specs.values():
            alt.Chart.from_dict(json.loads(spec), validate=True)
