"""Robust regression with priors: a small Levenberg-Marquardt for a few dozen parameters and some thousand rows.

Belongs here: minimising a Huber loss of residuals plus a Gaussian prior. Does not belong here: what is fitted
(`fit.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pipelines.efficiency.flops import Array

_LARGEST_DAMPING = 1e8


def huber(residual: Array, width: float) -> Array:
    """Huber's loss: a square within `width`, a line beyond."""
    size = np.abs(residual)
    loss: Array = np.where(size < width, size * size / 2, width * (size - width / 2))
    return loss


def fit(
    residuals: Callable[[Array], Array],
    slopes: Callable[[Array], Array],
    prior: Array,
    spread: Array,
    weight: Array,
    *,
    noise: float,
    width: float,
    steps: int = 40,
) -> Array:
    """Minimise sum(weight x huber(residuals) / noise^2) + sum(((x - prior) / spread)^2) / 2.

    Args:
        residuals: [rows] residual of each row at given parameters.
        slopes: [rows, parameters] its derivatives.
        prior: mean of the prior, and the start.
        spread: standard deviation of the prior.
        weight: weight of each row; 0 leaves it out.
        noise: residual that counts as much as one standard deviation of the prior.
        width: residual from which on a row pulls no harder.
        steps: most iterations.

    Returns:
        The parameters, never worse than the prior's mean.

    """
    x = prior.copy()

    def cost(at: Array) -> float:
        loss = weight * huber(residuals(at), width)
        return float(loss.sum() / noise**2 + (((at - prior) / spread) ** 2).sum() / 2)

    damping, best = 1e-2, cost(x)
    for _ in range(steps):
        now = residuals(x)
        slope = slopes(x)
        pull = weight * np.minimum(1.0, width / np.maximum(np.abs(now), 1e-12)) / noise**2
        normal = (slope * pull[:, None]).T @ slope + np.diag(spread**-2.0)
        gradient = (slope * pull[:, None]).T @ now + (x - prior) / spread**2
        before = best
        while damping < _LARGEST_DAMPING:
            moved = x - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            reached = cost(moved)
            if reached < best:
                x, best, damping = moved, reached, max(damping / 4, 1e-7)
                break
            damping *= 4
        if before - best <= 1e-5 * best:
            break
    return x
