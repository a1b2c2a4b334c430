"""Writes the example week: gateway log by UTC day, accelerator telemetry, and the truth about both.

Belongs here: the order of things and the files. Does not belong here: what is in them (the other modules of
this package). There is no clock and no state: the same arguments give the same bytes.
"""

from __future__ import annotations

from collections import deque
from datetime import date, timedelta
from pathlib import Path

from parsers.errors import SiteConfigError
from pipelines.synth import gateway_log, habits, incidents, sessions, telemetry, traffic
from pipelines.synth.company import AGENT_WEEKLY, ORDINARY, REQUESTS_PER_WEEK, START
from pipelines.synth.prompts import TextPool
from pipelines.synth.tally import Tally
from pipelines.synth.traffic import DAYS_PER_WEEK, Calls, Day
from pipelines.synth.truth import Truth, truth_of
from pipelines.synth.waste_kinds import ALL

MIN_REQUESTS_PER_DAY = 50
MAX_DAYS = 366


def write_week(
    out: Path,
    days: int = DAYS_PER_WEEK,
    requests: int | None = None,
    seed: int = 7,
    waste: frozenset[str] = ALL,
    start: date = START,
) -> Truth:
    """Write `gateway/DAY.jsonl`, `telemetry/nvidia_smi.csv` and `truth.json` below `out`, day by day.

    Args:
        out: an empty or new folder.
        days: number of UTC days.
        requests: rows of the gateway log, about; 20,000 a week if not given.
        seed: the same seed gives the same bytes.
        waste: the kinds of waste to plant (`waste_kinds.py`); the others are mended.
        start: the first day.

    Raises:
        SiteConfigError: `out` holds something already, or there are too few requests or days.

    """
    wanted = round(REQUESTS_PER_WEEK * days / DAYS_PER_WEEK) if requests is None else requests
    _check(out, days, wanted)
    (out / "gateway").mkdir(parents=True, exist_ok=True)
    (out / "telemetry").mkdir(exist_ok=True)
    pool = TextPool(seed)
    scale, capped_scale = traffic.scales(wanted, days)
    tally, totals = Tally(), telemetry.Totals()
    again: list[str] = []
    with (out / "telemetry" / "nvidia_smi.csv").open("w", encoding="ascii", newline="\n") as csv:
        csv.write(telemetry.HEADER)
        for number in range(days):
            day = Day(number, start + timedelta(days=number), days, start, scale, capped_scale, seed, waste)
            calls = incidents.happen(_calls(day, pool), day)
            csv.write(telemetry.lines_of(day, calls, totals))
            again = _write_day(out, day, calls, tally, again)
    truth = truth_of(
        tally,
        seed=seed,
        start=start.isoformat(),
        days=days,
        waste=waste,
        telemetry=totals.document(),
    )
    (out / "truth.json").write_text(truth.to_json(), encoding="ascii", newline="\n")
    return truth


def _check(out: Path, days: int, requests: int) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SiteConfigError(
            "the folder for the example week is not empty",
            where=str(out),
            remedy="Name a new folder with --out.",
        )
    if not 1 <= days <= MAX_DAYS:
        raise SiteConfigError(f"{days} days", where="--days", remedy=f"Ask for 1 to {MAX_DAYS}.")
    least = MIN_REQUESTS_PER_DAY * days
    if requests < least:
        raise SiteConfigError(
            f"{requests} requests are too few for {days} days",
            where="--requests",
            remedy=f"Ask for {least} or more, so that everything that is planted has room.",
        )


def _calls(day: Day, pool: TextPool) -> Calls:
    parts = [traffic.ordinary(day, work, pool) for work in ORDINARY]
    parts.append(sessions.faq(day, pool))
    parts += [sessions.documents(day, alias, pool) for alias in sessions.SYSTEM_TOKENS]
    parts += [sessions.agents(day, alias) for alias in AGENT_WEEKLY]
    parts.append(sessions.oversize(day))
    parts += [make(day, pool) for make in habits.HABITS]
    if day.is_launch:
        parts.append(traffic.burst(day))
    return traffic.join(parts)


def _write_day(out: Path, day: Day, calls: Calls, tally: Tally, again: list[str]) -> list[str]:
    """Write one day's file, the lines that the export repeats first; give those that the next one repeats."""
    gap = incidents.gap_of(day)
    if gap:
        lost = (calls.started_us >= gap[0]) & (calls.started_us < gap[1])
        tally.add_gap(*gap, calls.take(lost))
        calls = calls.take(~lost)
    cost_nano = gateway_log.costs_of(calls)
    tally.add(day.number, calls, cost_nano)
    name = f"gateway/{day.day.isoformat()}.jsonl"
    tail: deque[str] = deque(maxlen=incidents.overlap_count(day))
    with (out / name).open("w", encoding="ascii", newline="\n") as file:
        file.writelines(again)
        for line in gateway_log.lines_of(calls, cost_nano, day.rng("ids")):
            file.write(line)
            tail.append(line)
    tally.files[name] = len(again) + len(calls)
    if again:
        tally.duplicates[name] = len(again)
    return list(tail)
