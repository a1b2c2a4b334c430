"""The providers' caching rules: what can be read from a prefix cache at all.

Belongs here: reading the dated table `warehouse/reference/caching_rules.csv` and finding the rule of a
provider, a model and a day. Does not belong here: prices (the price table has them) and what was missed
(`repetition.py`).

Columns of the table:
    provider, model: globs over the lower-cased names; an unknown name is the empty string.
    minimum_tokens: shortest prefix that is cached.
    step_tokens: a reusable prefix is cut to a multiple of this.
    lifetime_s: seconds after the last use; empty = kept until evicted for room (own engines).
    scope: who shares a cache. `account`: calls of one organisation and region, where the log names them;
        `fleet`: all calls of an own engine.
    write_multiple: price of a cache write / price of input; empty = writes cost nothing extra.
    activation: `automatic`, or `opt_in` where a call must ask for caching (`cache_control`, cache points, a key).
    routing_key: what a call can name so that calls of one prefix reach one cache; empty = nothing.
    longer_lifetime_s, longer_write_multiple: the longer lifetime that can be had, and the price of a write for it
        / price of input; empty = there is none; writes for it cost nothing extra.
    assumed: those of the figures that no source states, separated by `;`, with what stands in for them after `:`.
    source, valid_from: where it is stated; first day it holds.

Approximations, named as assumed where they matter. Providers that cache at exact breakpoints (OpenAI from gpt-5.6 on,
Anthropic) or in units of their own (DeepSeek) read up to the last one that both calls share; no log names them, so the
whole common prefix counts, unrounded: an upper bound. What lies beyond the reads and writes of a call that opted in is
told apart from the rest as a cause (`causes.py`).

Rows are tried from the top; the first that matches and is valid wins, so special rows and newer ones stand
above. A provider or model that is named but whose row is not valid yet caches nothing on that day. Only what
no row names falls to the last row, `*,*`.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from importlib.resources import files

import polars as pl

from parsers.errors import SiteConfigError
from pipelines.waste.lookup import beside

SCOPES = ("account", "fleet")
ACTIVATIONS = ("automatic", "opt_in")
ANY_DAY = dt.date.max
"""Day that stands for logs without a wall clock: the newest rules hold."""

RULE_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "minimum_tokens": pl.Int64,
    "step_tokens": pl.Int64,
    "lifetime_s": pl.Int64,
    "cache_scope": pl.Categorical,
    "write_multiple": pl.Decimal(10, 4),
    "activation": pl.Categorical,
    "routing_key": pl.Categorical,
    "longer_lifetime_s": pl.Int64,
    "longer_write_multiple": pl.Decimal(10, 4),
    "rule_assumed": pl.Categorical,
    "rule_source": pl.Categorical,
}
_FIELDS = (
    "provider",
    "model",
    "minimum_tokens",
    "step_tokens",
    "lifetime_s",
    "scope",
    "write_multiple",
    "activation",
    "routing_key",
    "longer_lifetime_s",
    "longer_write_multiple",
    "assumed",
    "source",
    "valid_from",
)


@dataclass(frozen=True, slots=True)
class CachingRule:
    """One row of the table; see the module's head for units."""

    provider: str
    model: str
    minimum_tokens: int
    step_tokens: int
    lifetime_s: int | None
    scope: str
    write_multiple: Decimal | None
    activation: str
    routing_key: str | None
    longer_lifetime_s: int | None
    longer_write_multiple: Decimal | None
    assumed: str | None
    source: str
    valid_from: dt.date

    def names(self, provider: str, model: str) -> bool:
        """Whether the globs match the (lower-cased) names."""
        return fnmatchcase(provider, self.provider) and fnmatchcase(model, self.model)


def default_rules() -> tuple[CachingRule, ...]:
    """The rules that come with the program."""
    path = files("warehouse").joinpath("reference", "caching_rules.csv")
    return read_rules(path.read_text(encoding="utf-8"), where="caching_rules.csv")


def read_rules(text: str, *, where: str) -> tuple[CachingRule, ...]:
    """Read the table from CSV text.

    Raises:
        SiteConfigError: a column is missing, a value is not what its column says, or the last row is not
            `*,*`.

    """
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in _FIELDS if name not in (reader.fieldnames or ())]
    if missing:
        raise SiteConfigError(f"columns are missing: {', '.join(missing)}", where=where, remedy="Add them")
    rules = tuple(_rule(row, f"{where}, line {reader.line_num}") for row in reader)
    if not rules or (rules[-1].provider, rules[-1].model) != ("*", "*"):
        raise SiteConfigError(
            "the last rule must be `*,*`", where=where, remedy="Add a rule for what no other names"
        )
    return rules


def _rule(row: dict[str, str], where: str) -> CachingRule:
    try:
        rule = CachingRule(
            provider=row["provider"].lower(),
            model=row["model"].lower(),
            minimum_tokens=int(row["minimum_tokens"]),
            step_tokens=int(row["step_tokens"]),
            lifetime_s=int(row["lifetime_s"]) if row["lifetime_s"] else None,
            scope=row["scope"],
            write_multiple=Decimal(row["write_multiple"]) if row["write_multiple"] else None,
            activation=row["activation"],
            routing_key=row["routing_key"] or None,
            longer_lifetime_s=int(row["longer_lifetime_s"]) if row["longer_lifetime_s"] else None,
            longer_write_multiple=(
                Decimal(row["longer_write_multiple"]) if row["longer_write_multiple"] else None
            ),
            assumed=row["assumed"] or None,
            source=row["source"],
            valid_from=dt.date.fromisoformat(row["valid_from"]),
        )
    except (ValueError, TypeError, InvalidOperation) as error:
        raise SiteConfigError(
            f"a value is not of its column's type: {error}", where=where, remedy="Correct the line"
        ) from error
    if (
        rule.minimum_tokens < 0
        or rule.step_tokens < 1
        or rule.scope not in SCOPES
        or rule.activation not in ACTIVATIONS
        or (1 if rule.lifetime_s is None else rule.lifetime_s) < 1
        or (rule.longer_lifetime_s is not None and rule.longer_lifetime_s <= (rule.lifetime_s or 0))
    ):
        raise SiteConfigError(
            "minimum_tokens must be 0 or more, step_tokens and lifetime_s 1 or more, longer_lifetime_s above "
            f"lifetime_s, scope one of {', '.join(SCOPES)}, activation one of {', '.join(ACTIVATIONS)}",
            where=where,
            remedy="Correct the line",
        )
    return rule


def rule_for(
    rules: Iterable[CachingRule], provider: str | None, model: str | None, day: dt.date
) -> CachingRule | None:
    """The rule that holds; None if the provider is named but cached nothing on that day."""
    names = ((provider or "").lower(), (model or "").lower())
    known = False
    for rule in rules:
        if rule.names(*names) and not (known and (rule.provider, rule.model) == ("*", "*")):
            if rule.valid_from <= day:
                return rule
            known = True
    return None


def with_rules(calls: pl.DataFrame, rules: tuple[CachingRule, ...]) -> pl.DataFrame:
    """Add the rule of each call's provider, model and `rule_day`; rows and their order stay.

    Returns:
        the calls with the columns of `RULE_COLUMNS`; `minimum_tokens` is null where nothing is cached.

    """
    key = ["provider", "model", "rule_day"]
    keys = calls.select(key).unique()
    found = [rule_for(rules, *names) for names in keys.iter_rows()]
    nothing = (None, 1, None, SCOPES[0], None, ACTIVATIONS[0], None, None, None, None, None)
    columns = [
        nothing
        if rule is None
        else (
            rule.minimum_tokens,
            rule.step_tokens,
            rule.lifetime_s,
            rule.scope,
            rule.write_multiple,
            rule.activation,
            rule.routing_key,
            rule.longer_lifetime_s,
            rule.longer_write_multiple,
            rule.assumed,
            rule.source,
        )
        for rule in found
    ]
    resolved = pl.DataFrame(columns, schema=RULE_COLUMNS, orient="row")
    return beside(calls, pl.concat([keys, resolved], how="horizontal"), key)


def with_lifetime_in_use(calls: pl.DataFrame) -> pl.DataFrame:
    """Let the longer lifetime and its write price hold for the models and teams that write for it already.

    A log does not say which lifetime a read had. A model and team that writes more tokens for the longer lifetime
    than for the shorter one is taken to use it throughout.

    Args:
        calls: calls with the columns of `RULE_COLUMNS`, `cache_write_tokens`, `cache_write_1h_tokens`.

    Returns:
        the calls with `writes_for_longer` (Boolean), and with `lifetime_s` and `write_multiple` of the longer lifetime
        where it holds; there `longer_lifetime_s` and `longer_write_multiple` are null.

    """
    if not (calls["cache_write_1h_tokens"] > 0).any():
        return calls.with_columns(writes_for_longer=pl.lit(value=False))
    hour = pl.col("cache_write_1h_tokens").sum()
    leaf = ("provider", "model", "team")
    longer = (2 * hour > pl.col("cache_write_tokens").sum()).over(leaf) & pl.col(
        "longer_lifetime_s"
    ).is_not_null()
    calls = calls.with_columns(writes_for_longer=longer)
    pairs = (("lifetime_s", "longer_lifetime_s"), ("write_multiple", "longer_write_multiple"))
    return calls.with_columns(
        *(pl.when("writes_for_longer").then(new).otherwise(old).alias(old) for old, new in pairs),
        *(pl.when(~pl.col("writes_for_longer")).then(new).alias(new) for _, new in pairs),
    )
