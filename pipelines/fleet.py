"""The site file `fleet.toml`: what hardware runs which models, what it costs, and what latency is promised.

Belongs here: its schema, its defaults with the reason for each, reading it, and finding the pool of a model.
Does not belong here: figures of accelerators and models (`warehouse/catalogue.py`), anything computed from
them.
"""

from __future__ import annotations

import difflib
import tomllib
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, available_timezones

import polars as pl
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from parsers.errors import SiteConfigError
from warehouse.catalogue import (
    Accelerator,
    Model,
    Precision,
    accelerators,
    closest,
    find_model,
    match_accelerator,
    models,
)
from warehouse.prices import read_overrides

HOURS_PER_MONTH = 730
HOURS_PER_YEAR = 8760

Money = Annotated[Decimal, Field(ge=0, max_digits=18)]
Positive = Annotated[float, Field(gt=0)]
PositiveCount = Annotated[int, Field(gt=0)]


class _Section(BaseModel):
    """A table of the file: unknown keys are errors, values don't change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def stated(self, key: str) -> bool:
        """Whether the file states the key, or the default stands."""
        return key in self.model_fields_set


class Site(_Section):
    """`[site]`: what holds for the whole site."""

    name: str = "unnamed site"
    timezone: str = "UTC"
    electricity_usd_per_kwh: Money = Decimal("0.12")
    pue: Annotated[float, Field(ge=1, le=5)] = 1.54
    amortisation_years: Annotated[float, Field(gt=0, le=20)] = 4.0
    growth_per_year: Annotated[float, Field(gt=-1, le=20)] = 0.0
    headroom_ratio: Annotated[float, Field(ge=0, le=10)] = 0.2
    prices: str | None = None
    """CSV file of the site's own prices, beside the fleet file: see `warehouse.prices.read_overrides`."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if value not in available_timezones():
            near = difflib.get_close_matches(value, available_timezones(), n=3)
            raise ValueError(
                f"no time zone is called {value!r}. {_did_you_mean(near, 'Use a name like Europe/Berlin')}"
            )
        return value

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of the site."""
        return ZoneInfo(self.timezone)


class Slo(_Section):
    """`[slo]`: the latency that 95 % of the calls keep."""

    ttft_p95_ms: Positive = 2000.0
    tpot_p95_ms: Positive = 100.0


class Pool(_Section):
    """`[[pools]]`: accelerators of one kind that serve one model."""

    name: Annotated[str, Field(min_length=1)]
    models: Annotated[tuple[str, ...], Field(min_length=1)]
    architecture: str
    accelerator: str
    accelerators: PositiveCount
    tensor_parallel: PositiveCount = 1
    precision: Precision = "bf16"
    serving: Literal["own", "cloud"] = "cloud"
    capex_usd_per_accelerator: Money | None = None
    usd_per_accelerator_hour: Money | None = None
    host_power_factor: Annotated[float, Field(ge=1, le=5)] = 1.25
    devices: tuple[str, ...] = ()

    @field_validator("architecture")
    @classmethod
    def _known_architecture(cls, value: str) -> str:
        if find_model(value) is None:
            raise ValueError(f"no architecture is called {value!r}. Did you mean {closest(value, models())}?")
        return value

    @field_validator("accelerator")
    @classmethod
    def _known_accelerator(cls, value: str) -> str:
        if match_accelerator(value) is None:
            raise ValueError(
                f"no accelerator is called {value!r}. Did you mean {closest(value, accelerators())}?"
            )
        return value

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.accelerators % self.tensor_parallel:
            raise ValueError(
                f"{self.accelerators} accelerators can't be split into groups of tensor_parallel = "
                f"{self.tensor_parallel}. Make accelerators a multiple of tensor_parallel"
            )
        return self

    @cached_property
    def model(self) -> Model:
        """The architecture's record."""
        found = find_model(self.architecture)
        if found is None:
            raise SiteConfigError(
                f"no architecture is called {self.architecture!r}", where=f"pool {self.name}"
            )
        return found

    @cached_property
    def card(self) -> Accelerator:
        """The accelerator's record."""
        found = match_accelerator(self.accelerator)
        if found is None:
            raise SiteConfigError(f"no accelerator is called {self.accelerator!r}", where=f"pool {self.name}")
        return found

    @property
    def replicas(self) -> int:
        """Copies of the model that run side by side."""
        return self.accelerators // self.tensor_parallel

    def serves(self, model: str) -> bool:
        """Whether one of the globs matches the model's name in the log, whatever its case."""
        return any(fnmatchcase(model.casefold(), glob.casefold()) for glob in self.models)


class Fleet(_Section):
    """The whole site file."""

    site: Site = Site()
    slo: Slo = Slo()
    pools: tuple[Pool, ...] = ()
    _price_overrides: pl.DataFrame | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [pool.name for pool in self.pools]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"pools share a name: {', '.join(map(repr, twice))}. Give each pool its own name"
            )
        return self

    @classmethod
    def default(cls) -> Fleet:
        """The fleet of a site that has no file: no pools, and every default, each named in `basis`."""
        return cls()

    @property
    def price_overrides(self) -> pl.DataFrame | None:
        """The site's own prices; where they match a call, list prices of it are not used."""
        return self._price_overrides

    def pool_of(self, model: str) -> Pool | None:
        """Find the pool that serves a model name of the log: the first in the file that matches."""
        return next((pool for pool in self.pools if pool.serves(model)), None)

    @property
    def basis(self) -> tuple[str, ...]:
        """One sentence per figure that the file does not state, with the default and its reason."""
        lines = [
            f"{prefix}.{key} = {getattr(section, key)} ({reason}; not stated in the fleet file)"
            for prefix, section, reasons in (
                ("site", self.site, _SITE_REASONS),
                ("slo", self.slo, _SLO_REASONS),
            )
            for key, reason in reasons.items()
            if not section.stated(key)
        ]
        for pool in self.pools:
            for key, reason in _POOL_REASONS.items():
                if not pool.stated(key):
                    lines.append(f"pool {pool.name}: {key} = {getattr(pool, key)} ({reason}; not stated)")
            lines.extend(_price_basis(pool))
        return tuple(lines)


_SITE_REASONS = {
    "timezone": "days and hours are shown in UTC",
    "electricity_usd_per_kwh": "an assumption, of the order of an industrial tariff",
    "pue": "average of the Uptime Institute's survey of 2025",
    "amortisation_years": "an assumption; 3 to 5 years are usual",
    "growth_per_year": "no growth is assumed",
    "headroom_ratio": "an assumption: a week holds one draw of the peak",
}
_SLO_REASONS = {
    "ttft_p95_ms": "an assumption: the limit of MLPerf's server scenario for Llama 2 70B",
    "tpot_p95_ms": "an assumption: ten tokens a second, faster than people read",
}
_POOL_REASONS = {
    "tensor_parallel": "one accelerator per replica",
    "precision": "the precision that most weights are published in",
    "serving": "rented, since no purchase is stated",
    "host_power_factor": "middle of 1.13 to 1.30 x TDP measured at the wall in MLPerf 5.1",
}


def _price_basis(pool: Pool) -> list[str]:
    card = pool.card
    if pool.serving == "own" and pool.capex_usd_per_accelerator is None:
        price, what, source = card.capex_usd, "USD per accelerator", card.capex_source
    elif pool.serving == "cloud" and pool.usd_per_accelerator_hour is None:
        price, what, source = card.cloud_usd_per_hour, "USD per accelerator hour", card.cloud_source
    else:
        return []
    if price is None:
        return [
            f"pool {pool.name}: no price is stated and none is known for {card.name}: its cost is unknown"
        ]
    return [f"pool {pool.name}: {price:,.2f} {what} (middle of the catalogue's range; {source}; not stated)"]


def load_fleet(path: Path) -> Fleet:
    """Read a site file.

    Raises:
        SiteConfigError: the file is absent or not TOML, or a key is unknown, missing or wrong.

    """
    if path.exists() and not path.is_file():
        raise SiteConfigError("it is no file", where=str(path), remedy="Give a TOML file")
    try:
        data = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except OSError as error:
        raise SiteConfigError(
            f"the fleet file can't be read ({error.strerror})",
            where=str(path),
            remedy="Check the path and its rights",
        ) from error
    except UnicodeDecodeError as error:
        raise SiteConfigError(
            "the fleet file is not UTF-8", where=str(path), remedy="Save it as UTF-8"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SiteConfigError(
            f"not valid TOML: {error}", where=str(path), remedy="Correct that line"
        ) from error
    try:
        fleet = Fleet.model_validate(data)
    except ValidationError as error:
        raise _explain(error, path) from error
    if fleet.site.prices is not None:
        fleet._price_overrides = read_overrides(path.parent / fleet.site.prices)  # noqa: SLF001 - its only maker
    return fleet


_MODELS: dict[str, type[_Section]] = {"": Fleet, "site": Site, "slo": Slo, "pools": Pool}


def _explain(error: ValidationError, path: Path) -> SiteConfigError:
    """Say the first problem of a file in one line, with its key and what to do."""
    problems = error.errors(include_url=False)
    first = problems[0]
    parts = first["loc"]
    key = _key(parts)
    table = _MODELS.get(str(parts[0]) if len(parts) > 1 else "", Fleet)
    what, remedy = _words(first, str(parts[-1]) if parts else "", table)
    if len(problems) > 1:
        others = ", ".join(_key(problem["loc"]) for problem in problems[1:4])
        remedy = f"{remedy}. {len(problems) - 1} more: {others}"
    return SiteConfigError(what, where=f"{path}: {key}" if key else str(path), remedy=remedy)


def _key(parts: tuple[int | str, ...]) -> str:
    """Write `('pools', 0, 'name')` as `pools[1].name`: people count from 1."""
    text = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.lstrip(".")


def _words(problem: Any, name: str, table: type[_Section]) -> tuple[str, str]:
    kind, message = problem["type"], str(problem["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        known = list(table.model_fields)
        near = difflib.get_close_matches(name, known, n=3)
        return f"the key {name!r} is unknown", _did_you_mean(near, f"Known keys: {', '.join(known)}")
    if kind == "missing":
        return f"the key {name!r} is missing", f"Add {name} to the table"
    if kind == "value_error":
        what, _, remedy = message.partition(". ")
        return what, remedy
    return f"{message} (found {problem['input']!r:.60})", "Correct the value"


def _did_you_mean(near: list[str], otherwise: str) -> str:
    return f"Did you mean {', '.join(map(repr, near))}?" if near else otherwise
