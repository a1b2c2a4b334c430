"""The report page: one HTML file that holds charts, scripts and styles, and asks for nothing.

Belongs here: putting document, charts, tables and decision into the templates, the scripts, the policy that
forbids the network, and escaping. Does not belong here: figures (`audit_json.py`), sentences
(`decision.py`), layout (`templates/`).

Names from logs are hostile. Jinja escapes them in HTML, and characters that hide or reorder text are written
out as escapes; in the JSON of the charts `<`, `>`, `&` and the two
line separators of Unicode are written as escapes, so that no text ends a script block. The content policy
allows the two inline scripts of this module, by hash, and no other; charts are evaluated by Vega's
interpreter, so no string is ever compiled to code.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from reports import findings_table, options_tables, page_strings, strings, tables
from reports.application_strings import APPLICATIONS
from reports.application_tables import application_tables, tasks_note
from reports.audit_json import AuditInputs
from reports.cache_curves import memory_table, replicas_chart
from reports.charts import Chart, Kind
from reports.decision import Decision
from reports.definitions import DEFINITIONS
from reports.demand_charts import demand_charts
from reports.demand_tables import demand_sentences, demand_tables
from reports.document_figures import all_requests, served, site_zone
from reports.efficiency_charts import efficiency_charts
from reports.engines import engine_sentences
from reports.money_charts import money_charts
from reports.numbers import (
    exact,
    instant,
    money,
    money_exact,
    percent,
    percent_exact,
    printable,
    short,
    visible,
    zone_of,
)
from reports.options_charts import options_charts, quality_charts
from reports.reuse_strings import REUSE
from reports.reuse_tables import reuse_tables
from reports.sensitivity import sensitivity_charts
from reports.shape_charts import shape_charts
from reports.sums import sums_sentences
from reports.task_chart import tasks_chart
from reports.waste_charts import waste_charts

SHOWN_FINDINGS = 50
SHOWN_BASES = 40
_FIRST_SCREEN = (
    ("demand_week", "demand_series"),
    ("money_change", "money_team", "money_model", "demand_lengths"),
)
"""Charts of the first screen: of each group the first that can be drawn."""
_JSON_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: its charts that can be drawn, and the sentences for those that can't."""

    anchor: str
    title: str
    lead: str
    charts: list[Chart]
    absent: list[str]


def render(document: Mapping[str, Any], inputs: AuditInputs, decision: Decision) -> str:
    """Write the report.

    Args:
        document: `audit_document(inputs)`.
        inputs: the frames it was made from; charts draw their points from them.
        decision: `decision(document)`.

    Returns:
        A whole HTML document, self-contained.

    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        # The scripts are bundled outside of Python: meanwhile Altair is imported and the charts are built.
        bundled = pool.submit(_libraries, _newest_vega_lite())
        charts = _charts(document, inputs, decision)
        page = _environment().get_template("page.html.j2")
        libraries = bundled.result()
    if _vega_lite_of_altair() != _newest_vega_lite():
        libraries = _libraries(_vega_lite_of_altair())
    scripts = (libraries, Markup(_asset("page.js")))  # noqa: S704 - the project's own file
    found = {name: chart for name, chart in charts.items() if chart is not None}
    first = [next((name for name in group if name in found), group[0]) for group in _FIRST_SCREEN]
    return page.render(
        document=document,
        decision=decision,
        sections=_sections(charts, first),
        first_screen=[found[name] for name in first if name in found],
        first_absent=[page_strings.ABSENT[name] for name in first if name not in found],
        tables=_tables(document, inputs),
        prefix_figures=tables.prefix_figures(document),
        reasons_marked=options_tables.option_reasons(document, marked=True),
        reasons_others=options_tables.option_reasons(document, marked=False),
        engines=engine_sentences(document),
        profile=demand_sentences(document),
        sums=sums_sentences(document),
        findings=document["findings"][:SHOWN_FINDINGS],
        savings_note=findings_table.savings_note(document),
        findings_left=max(0, len(document["findings"]) - SHOWN_FINDINGS),
        definitions=DEFINITIONS,
        words=page_strings.PAGE,
        reuse=REUSE,
        applications=APPLICATIONS,
        tasks_note=tasks_note(document),
        section_names=page_strings.SECTIONS,
        estimates=page_strings.ESTIMATE,
        zone=site_zone(document),
        served=served(document),
        all_requests=all_requests(document),
        bases=_bases(document),
        style=Markup(_asset("page.css")),  # noqa: S704 - the project's own file
        scripts=scripts,
        policy=_policy(scripts),
    )


def _charts(document: Mapping[str, Any], inputs: AuditInputs, decision: Decision) -> dict[str, Chart | None]:
    return {
        **demand_charts(document, inputs),
        **shape_charts(document),
        **waste_charts(document),
        "waste_replicas": replicas_chart(document),
        "waste_tasks": tasks_chart(document),
        **efficiency_charts(document, inputs),
        **money_charts(document, decision),
        **options_charts(document),
        **sensitivity_charts(document),
        **quality_charts(document, inputs),
    }


def _sections(charts: Mapping[str, Chart | None], first: Sequence[str]) -> list[Section]:
    """Sections in the order of the page; a chart belongs to the section that its id begins with."""
    out = []
    for anchor, title in page_strings.SECTIONS.items():
        own = {name: chart for name, chart in charts.items() if name.startswith(f"{anchor}_")}
        here = [chart for name, chart in own.items() if chart is not None and name not in first]
        absent = [
            page_strings.ABSENT[name] for name, chart in own.items() if chart is None and name not in first
        ]
        out.append(Section(anchor, title, page_strings.LEAD.get(anchor, ""), here, absent))
    return out


def _tables(document: Mapping[str, Any], inputs: AuditInputs) -> dict[str, tables.Table]:
    return {
        "tokens": tables.tokens_table(document),
        "sums": tables.sums_table(document),
        "sums_by_day": tables.sums_by_day_table(document),
        "against_sums": tables.against_sums_table(document),
        "peaks": tables.peaks_table(document, of_all=True),
        "peaks_other": tables.peaks_table(document, of_all=False),
        **demand_tables(document),
        "evidence": tables.evidence_table(document),
        "savings": findings_table.savings_table(document),
        **reuse_tables(document),
        **application_tables(document),
        "memories": memory_table(document),
        "retries": tables.retries_table(document),
        "pools": tables.pools_table(document),
        "teams": tables.who_table(document, "team"),
        "api_keys": tables.keys_table(document),
        "models": tables.who_table(document, "model"),
        "as_is": options_tables.options_table(document, "as_is"),
        "waste_removed": options_tables.options_table(document, "waste_removed"),
        "flips": options_tables.flips_table(document),
        "checks": tables.checks_table(document),
        "files": tables.files_table(inputs),
    }


def _bases(document: Mapping[str, Any]) -> list[str]:
    """How estimates were made, in the stages' own words, each once."""
    said = [row["basis"] for row in document["peaks"]]
    said += [basis for entry in document["efficiency"] for basis in entry["basis"]]
    return [printable(basis, 400) for basis in dict.fromkeys(said)][:SHOWN_BASES]


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(
        short=short,
        exact=exact,
        money=money,
        money_exact=money_exact,
        percent=percent,
        percent_exact=percent_exact,
        printable=printable,
        plain_cell=plain_cell,
        embedded=embedded,
    )
    environment.globals["instant"] = lambda value, zone: instant(value, zone_of(zone))
    return environment


def _shown(value: Any) -> Any:
    """What a template puts out: text from logs with nothing hidden in it; the project's own markup as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def plain_cell(value: Any, kind: Kind) -> str:
    """The exact value of a cell of a table twin, without unit (its column names it)."""
    if value is None:
        return strings.UNKNOWN
    if kind == "money":
        return money_exact(value, "").strip()
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, int | float | Decimal):
        return percent_exact(value) if kind == "ratio" else exact(value)
    return str(value)


def embedded(value: Any) -> Markup:
    """JSON for a script block, with every character escaped that could end the block or a line of script."""
    text = json.dumps(
        _seen(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_json_default
    )
    return Markup(text.translate(_JSON_ESCAPES))  # noqa: S704 - no markup can be left in it


def _seen(value: Any) -> Any:
    """The same values with nothing hidden in their texts."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {key: _seen(part) for key, part in value.items()}
        case list() | tuple():
            return [_seen(part) for part in value]
        case _:
            return value


def _json_default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"a chart holds a {type(value).__name__}")


def _asset(name: str) -> str:
    return (resources.files("reports") / "templates" / name).read_text("utf-8")


def _newest_vega_lite() -> str:
    """Newest version (major.minor) of Vega-Lite that the package with the scripts carries."""
    import vl_convert

    return max(vl_convert.get_vegalite_versions(), key=lambda text: [int(part) for part in text.split(".")])


def _vega_lite_of_altair() -> str:
    """Version (major.minor) of Vega-Lite that Altair writes specifications for."""
    import altair as alt

    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


@functools.cache
def _libraries(version: str) -> Markup:
    """Vega, Vega-Lite (of a version) and vega-embed as one script, from the package that carries them."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)
    # Nothing in it may end the block it stands in.
    return Markup(bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--"))  # noqa: S704 - not from logs


def _policy(scripts: tuple[str, ...]) -> str:
    """Content policy: nothing from the network, the given scripts and no other."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'none'; form-action 'none'; base-uri 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
