"""The chart of what a task takes, beside a turn of a chat.

Belongs here: laying figures of `application_parts.tasks_part` out. Does not belong here: what a task is
(`pipelines/waste/task_demand.py`), the table of scopes (`application_tables.py`).
"""

from __future__ import annotations

from typing import Any

from reports.application_strings import TASKS
from reports.charts import ACCENT, GREY, Chart, Twin, bars
from reports.document_figures import Document
from reports.numbers import short

_CLASSES = ("chat", "agent")
_SHOWN = ("p50", "p90", "p99")


def tasks_chart(document: Document) -> Chart | None:
    """Tokens of the tasks of the whole log by class, over the mean of a chat turn; None where there is no task."""
    turn = document["tasks"]["forecast"]["chat_turn_tokens"]
    classes = {row["task_class"]: row for row in document["tasks"]["by_scope"] if row["scope"] == "all"}
    shown = [(name, classes[name]) for name in _CLASSES if name in classes]
    if not shown:
        return None
    figures: list[tuple[str, float, str]] = [] if turn is None else [(TASKS["turn"], turn, GREY)]
    figures += [
        (TASKS[name].format(quantile=quantile), row[f"tokens_{quantile}"], ACCENT)
        for name, row in shown
        for quantile in _SHOWN
    ]
    spec, height = bars(
        [
            {"name": name, "value": tokens, "label": short(round(tokens), "tokens"), "colour": colour}
            for name, tokens, colour in figures
        ],
        TASKS["axis"],
    )
    return Chart(
        id="waste_tasks",
        title=_title(*shown[-1], turn),
        spec=spec,
        twin=Twin(
            ((TASKS["what"], "text"), (TASKS["axis"], "count")),
            [(name, round(tokens)) for name, tokens, _ in figures],
        ),
        definition="task-demand",
        note=TASKS["note"],
        height=height,
    )


def _title(name: str, row: dict[str, Any], turn: float | None) -> str:
    """The class with most calls of a task, against a turn."""
    task = TASKS[f"{name}_title"].format(
        p50=short(round(row["tokens_p50"]), "tokens"), p90=short(round(row["tokens_p90"]), "tokens")
    )
    if not turn:
        return task
    return task + TASKS["against"].format(
        turns=short(max(round(row["tokens_mean"] / turn), 1)), turn=short(round(turn), "tokens")
    )
