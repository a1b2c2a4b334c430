"""What findings free on today's pools: monotone, adding up to the whole, null where nothing can be told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.freed_capacity import FREED, freed_capacity
from pipelines.sizing.load import demand_summary
from pipelines.sizing.replicas import MAX_UTILISATION, capacity, curve, planned_peak
from pipelines.sizing.roofline import Replica, steady_step
from pipelines.sizing.waste_removed import Removed, without_waste
from pipelines.waste.net_savings import SAVINGS
from warehouse.tables import COVERAGE

T0 = datetime(2026, 11, 16, tzinfo=UTC)
POOL = Pool(
    name="small",
    models=("qwen3-8b",),
    architecture="Qwen3 8B",
    accelerator="L40S",
    accelerators=4,
    tensor_parallel=2,
)
FLEET = Fleet(pools=(POOL,))
DAY = COVERAGE.conform(pl.DataFrame([{"start_at": T0, "end_at": T0 + timedelta(days=1), "is_gap": False}]))
CALLS, INPUT, OUTPUT = 400, 4000, 200


def loads(fleet=FLEET, **what):
    rows = pl.DataFrame(
        {
            "source_file": "log",
            "source_line": range(1, CALLS + 1),
            "source_format": "t",
            "status": "ok",
            "usage_origin": "reported",
            "model_served": "qwen3-8b",
            "started_at": [T0 + timedelta(seconds=n / 2) for n in range(CALLS)],
            "input_tokens": INPUT,
            "cache_read_tokens": 0,
            "output_tokens": OUTPUT,
        }
    ).with_columns(**{name: pl.lit(value) for name, value in what.items()})
    return demand_summary(REQUESTS.conform(rows).lazy(), DAY, fleet)


def savings(*findings):
    """SAVINGS of (id, calls, input, computed, output) for the model."""
    names = ("id", "calls_removed", "input_removed", "computed_removed", "output_removed")
    rows = [dict(zip(names, found, strict=True)) | {"model": "qwen3-8b"} for found in findings]
    frame = pl.DataFrame(rows, infer_schema_length=None) if rows else SAVINGS.to_frame()
    lacking = [name for name in SAVINGS if name not in frame.columns]
    return (
        frame.with_columns(pl.lit(None).alias(name) for name in lacking).select(SAVINGS.names()).cast(SAVINGS)
    )


def freed(*findings, of=None):
    table = freed_capacity(savings(*findings), loads() if of is None else of, FLEET)
    assert table.schema == FREED
    return {name: (seconds, replicas) for name, seconds, replicas in table.iter_rows()}


HALF_READ = ("missed", 0, 0, CALLS * INPUT // 2, 0)
TRIMMED = ("oversize", 0, CALLS * INPUT // 4, CALLS * INPUT // 8, 0)
REPEATED = ("repeated", CALLS // 10, CALLS * INPUT // 10, CALLS * INPUT // 10, CALLS * OUTPUT // 10)


def test_a_tenth_of_the_calls_is_a_tenth_of_the_seconds_and_of_the_replicas():
    (everything,) = freed(("all", CALLS - 1, CALLS * INPUT, CALLS * INPUT, CALLS * OUTPUT)).values()
    seconds, replicas = freed(REPEATED)["repeated"]
    assert seconds == pytest.approx(everything[0] / 10, rel=0.02)
    assert replicas == pytest.approx(everything[1] / 10, rel=0.02)


def test_seconds_and_replicas_of_findings_add_up_whatever_their_order():
    together = ("both", *(a + b for a, b in zip(HALF_READ[1:], TRIMMED[1:], strict=True)))
    (whole,) = freed(together).values()
    for order in ((HALF_READ, TRIMMED), (TRIMMED, HALF_READ)):
        parts = freed(*order)
        for place in (0, 1):
            assert sum(part[place] for part in parts.values()) == pytest.approx(whole[place], rel=1e-9)
            assert min(part[place] for part in parts.values()) > 0


def test_seconds_are_those_of_full_steps_with_and_without_the_tokens():
    (load,) = loads()
    replica = Replica(load.model, POOL.card, 2, POOL.precision)
    needed = []
    for part in (load, without_waste(load, Removed(*HALF_READ[1:]))):
        usual = curve(replica, part, part.prompt_ratio)
        each = capacity(replica, usual, part, FLEET.slo)
        steps = CALLS * OUTPUT / each.batch
        prompt, before = each.batch * part.prompt_ratio, part.input_mean - part.uncached_mean
        mean = steady_step(replica, each.batch, part.context_mean, prompt, part.uncached_mean, before)
        step = float(mean.total)
        needed.append(steps * step * 2)
    seconds, _ = freed(HALF_READ)["missed"]
    # The batch at the SLO lies between two of the curve's.
    assert seconds == pytest.approx(needed[0] - needed[1], rel=0.1)


def test_replicas_are_the_difference_at_the_planned_peak():
    (load,) = loads()
    replica = Replica(load.model, POOL.card, 2, POOL.precision)
    needed = []
    for part in (load, without_waste(load, Removed(*HALF_READ[1:]))):
        at_peaks = []
        for moment in part.at_moments:
            line = curve(replica, moment, moment.peak_prompt_ratio)
            each = capacity(replica, line, moment, FLEET.slo).output_per_s
            at_peaks.append(planned_peak(moment, FLEET.site) / each / MAX_UTILISATION)
        needed.append(max(at_peaks))
    _, replicas = freed(HALF_READ)["missed"]
    assert replicas == pytest.approx(needed[0] - needed[1], rel=0.1)


def test_small_savings_show():
    few = [freed(("missed", 0, 0, share * CALLS * INPUT // 1000, 0))["missed"] for share in (1, 2, 4)]
    assert few[0][0] > 0
    assert few[1][0] == pytest.approx(2 * few[0][0], rel=0.1)
    assert few[2][1] == pytest.approx(4 * few[0][1], rel=0.1)


@pytest.mark.parametrize(
    ("fleet", "what"),
    [
        (Fleet(), {}),
        (FLEET, {"model_served": "gpt-4o"}),
        (FLEET, {"output_tokens": None}),
    ],
    ids=["no fleet file", "an API's model", "no call tells its output"],
)
def test_where_nothing_of_ones_own_serves_it_nothing_is_said(fleet, what):
    assert freed(HALF_READ, of=loads(fleet, **what)) == {}


def test_what_takes_nothing_from_the_load_frees_nothing_that_is_known():
    assert freed(("failed", 0, 0, 0, 0)) == {}
    assert freed() == {}
