"""A replica under the steady load of a benchmark row: how many sequences it holds, and the work of its steps.

Belongs here: what follows from the lengths and the number of sequences before any coefficient is applied. Does
not belong here: coefficients and time (`roofline.py`), intervals (`predict.py`), arrivals (a replay).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.efficiency.flops import Array
from pipelines.sizing.memory import sequences_that_fit
from pipelines.sizing.roofline import Replica, Work, steady_work, work

PICTURE_TASKS = ("image-chat", "video-chat")


@dataclass(frozen=True)
class Serving:
    """Rows of one replica. Arrays of one value per row.

    `share` of the steps carry a chunk of a prompt (`mixed`), the rest do not (`plain`); `alone` is the work of one
    whole prompt on an idle replica; `crowd` is the number of sequences per group of attention; `pictures` is 1
    where prompts hold some.
    """

    replica: Replica
    sequences: Array
    resident: Array
    crowd: Array
    output_tokens: Array
    pictures: Array
    plain: Work
    mixed: Work
    alone: Work
    share: Array


def serving(replica: Replica, rows: pl.DataFrame) -> Serving:
    """Describe the steady state of a replica's rows (see `points.read_points`).

    Sequences beyond what the KV cache holds wait. Engines fill the cache with sequences of their present length,
    so it is the mean length that decides how many are resident.
    """
    sequences, prompt, output = (
        rows[name].to_numpy().astype(np.float64) for name in ("sequences", "input_tokens", "output_tokens")
    )
    context = prompt + output / 2
    fitting = sequences_that_fit(replica.model, replica.memory, replica.tensor_parallel, context)
    resident = np.minimum(sequences, np.maximum(fitting, replica.attention_dp * replica.pipeline_parallel))
    prefilled_here = ~rows["is_disaggregated"].to_numpy()
    prompts = np.where(prefilled_here, resident * prompt / output, 0.0)
    plain, mixed, share = steady_work(replica, resident, context, prompts, prompt)
    return Serving(
        replica=replica,
        sequences=sequences,
        resident=resident,
        crowd=np.maximum(sequences / replica.attention_dp, 1.0),
        output_tokens=output,
        pictures=rows["task"].is_in(PICTURE_TASKS).fill_null(value=False).to_numpy().astype(np.float64),
        plain=plain,
        mixed=mixed,
        alone=work(replica, 1.0, prompt, prompt),
        share=share,
    )
