"""Two steps of a run at a time, in threads of this process.

Belongs here: `two_at_a_time`, the executor of an audit. Does not belong here: what the steps do, and the scheduled pipeline,
whose steps run one after the other (`definitions.py`).

The stages after the facts run mostly on one core, and leave the interpreter for native code: two of them use two cores.
Why it is so, and what it rests on in Dagster: docs/decisions/0011-two-steps-at-a-time.md.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import ExecuteRunWithPlanIterable
from dagster._core.execution.context_creation_job import PlanExecutionContextManager
from dagster._core.execution.execute_in_process import core_execute_in_process
from dagster._core.execution.plan.execute_plan import dagster_event_sequence_for_step
from dagster._core.execution.retries import RetryMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dagster import DagsterEvent, InitExecutorContext
    from dagster._core.execution.context.system import (
        PlanExecutionContext,
        PlanOrchestrationContext,
        StepExecutionContext,
    )
    from dagster._core.execution.plan.plan import ExecutionPlan

STEPS_AT_ONCE = 2


class TwoAtATime(dg.Executor):
    """Runs what is ready, as soon as one of its threads is free. Nothing is tried again."""

    @property
    def retries(self) -> RetryMode:
        """No step is run again."""
        return RetryMode.DISABLED

    def execute(
        self, plan_context: PlanOrchestrationContext, execution_plan: ExecutionPlan
    ) -> Iterator[DagsterEvent]:
        """Run a plan; its events come as steps end.

        Raises:
            what a step raised, if the run is to raise. Steps that run beside it end first.

        """
        yield from ExecuteRunWithPlanIterable(
            execution_plan=execution_plan,
            iterator=_events,
            execution_context_manager=PlanExecutionContextManager(
                job=plan_context.job,
                retry_mode=plan_context.retry_mode,
                execution_plan=execution_plan,
                run_config=plan_context.run_config,
                dagster_run=plan_context.dagster_run,
                instance=plan_context.instance,
                raise_on_error=plan_context.raise_on_error,
                output_capture=plan_context.output_capture,
            ),
        )


def _events(job_context: PlanExecutionContext, execution_plan: ExecutionPlan) -> Iterator[DagsterEvent]:
    running: dict[Future[list[DagsterEvent]], str] = {}
    with (
        execution_plan.start(retry_mode=job_context.retry_mode) as active,
        ThreadPoolExecutor(STEPS_AT_ONCE) as pool,
    ):
        while not active.is_complete:
            for step in active.get_steps_to_execute(limit=STEPS_AT_ONCE - len(running)):
                step_context = job_context.for_step(step, active.get_known_state())
                running[pool.submit(_run_to_end, step_context)] = step.key
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(ended)
                for event in ended.result():
                    yield event
                    active.handle_event(event)
                active.verify_complete(job_context, key)
            yield from active.plan_events_iterator(job_context)


def _run_to_end(context: StepExecutionContext) -> list[DagsterEvent]:
    return list(dagster_event_sequence_for_step(context))


@dg.executor(name="two_at_a_time")
def two_at_a_time(_: InitExecutorContext) -> TwoAtATime:
    """Two steps at a time, in threads."""
    return TwoAtATime()


def materialize(
    definitions: dg.Definitions, job_name: str, instance: dg.DagsterInstance, tags: Mapping[str, str]
) -> None:
    """Run a job in this process by the executor that it names (`dg.materialize` puts its own in that place).

    Raises:
        what a step raised.

    """
    core_execute_in_process(
        job=InMemoryJob(definitions.resolve_job_def(job_name)),
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        instance=instance,
        output_capturing_enabled=False,
        raise_on_error=True,
        run_tags=tags,
    )
