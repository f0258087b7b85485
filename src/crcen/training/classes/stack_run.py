"""A stack of networks with an output for each class, from initial parameters to balanced results."""

import numpy as np
import torch
from numpy.typing import NDArray

from crcen.theory.balance import balance_shift, class_shifts
from crcen.theory.decision import sigmoid, softmax
from crcen.theory.price import Lam
from crcen.training.device_logits import device_logits
from crcen.training.names import ONE_AGAINST_ALL
from crcen.training.network import log_sigmoid
from crcen.training.solvers.objective import ClassObjective, Objective
from crcen.training.stack_run import LOGITS_AT_ONCE, StackRun

__all__ = ["ClassStackRun", "class_residual", "one_against_all_shifts"]

Array = NDArray[np.float64]


class ClassStackRun(StackRun):
    """`StackRun` for jobs with class weights."""

    def _weigh(self) -> None:
        """Weight of a row and of all rows of each class in every network, (G, M, C)."""
        y, s = self.data.y, self.data.sample_weight
        self.class_weights = np.array([[job.class_weights for job in group] for group in self.jobs])
        n_classes = self.class_weights.shape[2]
        counts = np.array([np.bincount(y[rows], s[rows], n_classes) for rows in self.rows])
        self.class_sums = self.class_weights * counts[:, None]

    def _prior(self) -> Array:
        """Output biases that networks start from, (G, M, C): logarithms of the weighted shares, their mean 0.

        Of one against all they are the log-odds of these shares.
        """
        logs = np.log(self.class_sums)
        if self.is_one_against_all:
            return np.asarray(logs - np.log(self.class_sums.sum(axis=2, keepdims=True) - self.class_sums))
        return np.asarray(logs - logs.mean(axis=2, keepdims=True))

    def _objective(self) -> Objective:
        by_class = self.class_weights / self.class_sums.sum(axis=2, keepdims=True)
        l2 = np.array([[job.l2 for job in group] for group in self.jobs])
        to = self.data.device, self.dtype
        weights = torch.from_numpy(np.ascontiguousarray(by_class.transpose(0, 2, 1))).to(*to)
        return ClassObjective.of(weights, torch.from_numpy(l2).to(*to))

    def _balance(
        self, g: int, models: slice, weights: list[Array], biases: list[Array], finite: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Shifts of the output biases (K, C) and the largest residual after them (K,), of networks of one shape."""
        jobs = self.jobs[g][models]
        shifts, residuals = np.zeros((len(jobs), self.class_weights.shape[2])), np.full(len(jobs), np.nan)
        rows = self._balance_rows(g)
        y, s = self.data.y[rows], self.data.sample_weight[rows]
        wanted = np.flatnonzero(finite & np.array([job.balance for job in jobs]))
        if not wanted.size or not np.bincount(y, s, shifts.shape[1]).all():
            return shifts, residuals
        numbers = wanted.size * shifts.size * len(rows) // len(jobs)
        for own in np.array_split(wanted, min(wanted.size, -(-numbers // LOGITS_AT_ONCE))):
            parameters = [w[g][own] for w in weights], [b[g][own] for b in biases]
            lead = self.leads[g]
            found = device_logits(self.data.X[rows], self.encodings[g], *parameters, lead.activation, self.data.device)
            for k, logits in zip(own, found.cpu().numpy(), strict=True):
                own_weights = self.class_weights[g, models.start + k]
                if self.is_one_against_all:
                    shifts[k] = one_against_all_shifts(y, logits, own_weights[y] * s)
                else:  # a shift that all classes share changes nothing: none of them is moved on the whole
                    shifts[k] = class_shifts(y, logits, own_weights, s)
                how = {"one_against_all": self.is_one_against_all}
                residuals[k] = class_residual(y, logits + shifts[k], own_weights[y] * s, **how)
        return shifts, residuals

    def _as_logits(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(log_sigmoid(outputs)) if self.is_one_against_all else outputs

    @property
    def is_one_against_all(self) -> bool:
        """Whether each output is a class against all others."""
        return self.jobs[0][0].loss == ONE_AGAINST_ALL


def one_against_all_shifts(y: NDArray[np.int64], logits: Array, row_weights: Array) -> Array:
    """Shifts (C,) with which Σ w (1{y=k} − σ(o_k)) = 0 for each class by itself: K binary solves."""
    columns = enumerate(logits.T)
    return np.array([balance_shift(y == k, column, Lam(0.5), row_weights) for k, column in columns])


def class_residual(y: NDArray[np.int64], logits: Array, row_weights: Array, *, one_against_all: bool = False) -> float:
    """The largest |Σ w (1{y=k} − q_k)| / Σ w of the classes, from logits (n, C), q by softmax or by sigmoids."""
    errors = -(sigmoid(logits) if one_against_all else softmax(logits))
    errors[np.arange(len(y)), y] += 1.0
    return float(np.abs(row_weights @ errors).max() / row_weights.sum())
