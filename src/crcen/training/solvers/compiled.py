"""An epoch of Adam on the CPU, and logits of held-out rows, each as one call that needs no interpreter.

A step of small networks is some twenty short operations, and in Python each of them waits for the interpreter: two
threads at it wait for each other more than they work. TorchScript compiles the epoch, to the same operations in the
same order. It is deprecated, not gone; where torch has it no more, or makes something else of it, the functions run as
they are, and so they do with torch's own switch, ``PYTORCH_JIT=0`` in the environment.
"""

import logging
import sys
import warnings
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crcen.training.encoding import column_layout, fit_encoding
from crcen.training.passes import ClassWeights, adam_epoch, logits_of_batches
from crcen.training.rows import RowFeed, TrainingData
from crcen.training.solvers.adam_step import AdamState
from crcen.training.stack import Stack

__all__ = ["compiled_adam_epoch", "compiled_logits"]

Epoch = Callable[..., None]
Logits = Callable[..., Tensor]

_LOCK = Lock()


def compiled_adam_epoch() -> Epoch:
    """`adam_epoch`, compiled where that gives the same numbers."""
    return _both()[0]


def compiled_logits() -> Logits:
    """`logits_of_batches`, likewise."""
    return _both()[1]


def _both() -> tuple[Epoch, Logits]:
    with _LOCK:  # warnings are ignored for all threads at a time, and compiling twice is waste
        return _compiled()


@cache
def _compiled() -> tuple[Epoch, Logits]:
    as_they_are: tuple[Epoch, Logits] = (adam_epoch, logits_of_batches)
    if sys.version_info >= (3, 14):  # TorchScript does not support it
        return as_they_are
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            scripts: list[Any] = [torch.jit.script(function) for function in as_they_are]
        epoch, logits = (_unoptimised(script) for script in scripts)
        is_compiled = all(script is not function for script, function in zip(scripts, as_they_are, strict=True))
        if is_compiled and torch.equal(_trained_by(epoch, logits), _trained_by(*as_they_are)):
            return epoch, logits
    except Exception:  # whatever a later torch raises: the other path needs nothing of it
        logging.getLogger(__name__).debug("no compiled epoch", exc_info=True)
    return as_they_are


def _unoptimised(script: Any) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        # Looking for something to optimise takes longer than a small fit, and finds nothing.
        with torch.jit.optimized_execution(False):
            return script(*arguments)

    return run


@torch.no_grad()
def _trained_by(epoch: Epoch, logits: Logits) -> Tensor:
    """Parameters of small networks after two steps, losses and logits: with one output, then with three."""
    return torch.cat([_trained_with(epoch, logits, 1), _trained_with(epoch, logits, 3)])


def _trained_with(epoch: Epoch, logits: Logits, n_outputs: int) -> Tensor:
    n, n_features = 12, 2
    X = np.random.default_rng(0).normal(size=(n, n_features))
    y = X[:, 0] > 0 if n_outputs == 1 else np.arange(n) % n_outputs
    data = TrainingData(X, y, np.ones(n), torch.device("cpu"))
    encoding = fit_encoding("steps", column_layout(X, "steps", 3), X, X[:, 0] > 0, np.ones(n))
    feed = RowFeed(data, [np.arange(n)], [np.ones(n)], [encoding], torch.float32, looks_up=True)
    shapes = [(2,), (3, 2)]
    size = (1, encoding.size, shapes)
    stack = Stack(*size, "relu", "cross_entropy", torch.float32, data.device, scaled=True, n_outputs=n_outputs)
    values = stack.flat.new_full((1, 2), 0.1)
    by_class = stack.flat.new_full((1, 0 if n_outputs == 1 else n_outputs, 2), 0.1)
    stack.initialise(torch.tensor([[0, 1]], device=data.device), stack.flat.new_full((1, 2, n_outputs), 0.1))
    index = feed.epoch_index([0], 0, n // 2)
    rows = feed.epoch_rows(index)
    state = AdamState.start(stack.flat, stack.grad, stack.penalties(values))
    views = (stack.design, stack.own, stack.grads, stack.buffers(rows.batch.shape[1]))
    losses = torch.zeros_like(values)
    epoch(
        *views,
        rows,
        feed.ramps(index),
        ClassWeights(values[:, None], values[:, None] / 2, by_class),
        state,
        losses,
        0,
        [0.1, 0.1],
        0,
    )
    found = logits(stack.design, stack.own, views[-1], [rows.batch, rows.batch], feed.ramps(index, with_readers=False))
    return torch.cat([stack.flat, losses[0], found.flatten()])
