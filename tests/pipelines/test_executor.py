"""Two steps at a time: they do run beside each other, in the order of what they depend on, and errors come through."""

import threading

import dagster as dg
import pytest

from pipelines.executor import materialize, two_at_a_time


class RefusedError(Exception):
    """What a step raises."""


def run(*assets):
    job = dg.define_asset_job("all", executor_def=two_at_a_time)
    with dg.DagsterInstance.ephemeral() as instance:
        materialize(dg.Definitions(assets=assets, jobs=[job]), "all", instance, {})


def test_two_steps_run_beside_each_other():
    both_run = threading.Barrier(2, timeout=20)

    @dg.asset
    def one() -> None:
        both_run.wait()

    @dg.asset
    def other() -> None:
        both_run.wait()

    run(one, other)
    assert not both_run.broken


def test_no_more_than_two_and_each_after_what_it_depends_on():
    lock, running, most, order = threading.Lock(), set(), [], []

    def step(name, deps=()):
        @dg.asset(name=name, deps=list(deps))
        def work() -> None:
            with lock:
                running.add(name)
                most.append(len(running))
            threading.Event().wait(0.05)
            with lock:
                running.remove(name)
                order.append(name)

        return work

    first = [step(f"first_{number}") for number in range(4)]
    run(*first, step("second", first), step("third", ["second"]))
    assert max(most) == 2
    assert set(order[:4]) == {f"first_{number}" for number in range(4)}
    assert order[4:] == ["second", "third"]


def test_what_a_step_raises_reaches_the_caller_and_nothing_after_it_runs():
    ran = []

    @dg.asset
    def broken() -> None:
        raise RefusedError("no such thing")

    @dg.asset(deps=[broken])
    def after() -> None:
        ran.append("after")

    with pytest.raises(RefusedError, match="no such thing"):
        run(broken, after)
    assert ran == []


def test_a_failed_blocking_check_stops_what_depends_on_its_asset():
    ran = []

    @dg.asset
    def checked() -> None: ...

    @dg.asset_check(asset=checked, blocking=True)
    def holds() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset(deps=[checked])
    def after() -> None:
        ran.append("after")

    job = dg.define_asset_job("all", executor_def=two_at_a_time)
    definitions = dg.Definitions(assets=[checked, after], asset_checks=[holds], jobs=[job])
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.DagsterError):
        materialize(definitions, "all", instance, {})
    assert ran == []
