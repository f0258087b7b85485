"""Count what the samplers of a pipeline hand on, whatever they are."""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["unwatch_samplers", "watch_samplers"]


class _WatchedSampler(BaseEstimator):
    """A sampler that also counts the labels it leaves; an estimator, since a pipeline with a cache clones its steps."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def fit_resample(self, X: Any, y: Any, **params: Any) -> Any:
        """The sampler's own."""
        resampled = self.sampler.fit_resample(X, y, **params)
        labels, counts = np.unique(np.asarray(resampled[1]), return_counts=True)
        self.counts_ = dict(zip(labels.tolist(), counts.tolist(), strict=True))
        return resampled


def watch_samplers(pipeline: Any) -> None:
    """Put a counter around each sampler of a pipeline that is yet to be fitted; other estimators have none."""
    if hasattr(pipeline, "steps"):
        pipeline.steps = [
            (name, _WatchedSampler(step) if hasattr(step, "fit_resample") else step) for name, step in pipeline.steps
        ]


def unwatch_samplers(pipeline: Any) -> list[dict[Any, int]]:
    """Take the counters off a fitted pipeline again: rows by label after each sampler, in order."""
    if not hasattr(pipeline, "steps"):
        return []
    recorded = [step.counts_ for _, step in pipeline.steps if isinstance(step, _WatchedSampler)]
    pipeline.steps = [
        (name, step.sampler if isinstance(step, _WatchedSampler) else step) for name, step in pipeline.steps
    ]
    return recorded
