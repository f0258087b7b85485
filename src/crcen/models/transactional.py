"""A fit happens whole or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["transactional_fit"]


@contextmanager
def transactional_fit(estimator: object) -> Iterator[None]:
    """Put an estimator back as it was if its fit fails, Ctrl-C included: what is half fitted must not look fitted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
