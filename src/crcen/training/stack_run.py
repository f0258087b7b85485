"""One stack from initial parameters to balanced results: the loop that every solver shares."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.exceptions import InvalidInput
from crcen.training.balance import relative_residual, solve_shifts
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.network import Network, initial_parameters, stacked_logits
from crcen.training.rows import RowFeed, TrainingData, standardization
from crcen.training.solvers import LBFGS, Adam, Objective, Solver
from crcen.training.stack import Stack

__all__ = ["Report", "StackRun"]

# Called with the share of a stack's work that is done; raises to stop the run.
Report = Callable[[float], None]

# Epochs without a lower validation loss before a network is stopped.
_PATIENCE = 10
_VALIDATION_ROWS = 4096


@dataclass
class _Watch:
    """Per-network state of the loop, each (G, M): the best epoch so far and whether the network still trains."""

    best_value: Tensor
    best_flat: Tensor
    since_best: Tensor
    stopped_at: Tensor


class StackRun:
    """One stack from initial parameters to results."""

    def __init__(self, groups: tuple[tuple[int, ...], ...], jobs: Sequence[TrainingJob], data: TrainingData) -> None:
        self.groups, self.data = groups, data
        self.jobs = [[jobs[p] for p in group] for group in groups]
        self.example = self.jobs[0][0]
        self.leads = [group[0] for group in self.jobs]  # rows and encoding are common to a group
        self.dtype = torch.float32 if self.example.solver == "adam" else torch.float64
        self.rows = [self._or_all(job.rows if job.rows is not None else job.pool) for job in self.leads]
        self.means, self.scales = self._encodings()
        self.stack = self._initial_stack()
        self.objective = self._objective()

    def _or_all(self, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return np.arange(self.data.n_rows) if rows is None else rows

    def _encodings(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        n_features = self.data.X.shape[1]
        if not self.example.standardize:
            shape = (len(self.groups), n_features)
            return np.zeros(shape), np.ones(shape)
        pairs = [standardization(self.data.X[rows], self.data.sample_weight[rows]) for rows in self.rows]
        return np.stack([mean for mean, _ in pairs]), np.stack([scale for _, scale in pairs])

    def _initial_stack(self) -> Stack:
        job, n_features = self.example, self.data.X.shape[1]
        shapes = [j.hidden for j in self.jobs[0]]
        stack = Stack(len(self.groups), n_features, shapes, job.activation, job.loss, self.dtype, self.data.device)
        for g, group in enumerate(self.jobs):
            for m, one in enumerate(group):
                weights, biases = initial_parameters(n_features, one.hidden, one.activation, one.seed)
                pos, neg = self._class_weights(g, one)
                biases[-1][:] = np.log(pos) - np.log(neg)  # the weighted prior
                stack.set_network(g, m, weights, biases)
        return stack

    def _class_weights(self, group: int, job: TrainingJob) -> tuple[float, float]:
        rows = self.rows[group]
        s, y = self.data.sample_weight[rows], self.data.y[rows]
        return job.lam * float(s[y].sum()), (1 - job.lam) * float(s[~y].sum())

    def _objective(self) -> Objective:
        table = np.empty((3, len(self.groups), len(self.groups[0])))
        for g, group in enumerate(self.jobs):
            for m, job in enumerate(group):
                total = sum(self._class_weights(g, job))
                table[:, g, m] = job.lam / total, (1 - job.lam) / total, job.l2
        return Objective(*torch.from_numpy(table).to(self.data.device, self.dtype))

    def _feed(self, pools: list[NDArray[np.int64]], weights: list[NDArray[np.float64]]) -> RowFeed:
        return RowFeed(
            self.data, pools, weights, self.means, self.scales, self.dtype, standardize=self.example.standardize
        )

    def _solver(self) -> Solver:
        s, job = self.data.sample_weight, self.example
        if job.solver == "lbfgs":
            return LBFGS(
                self.stack, self._feed(self.rows, [s[rows] for rows in self.rows]), self.objective, tol=job.tol
            )
        pools = [self._or_all(lead.pool) for lead in self.leads]
        weights = []
        for pool, rows, lead in zip(pools, self.rows, self.leads, strict=True):
            own = s[pool]
            is_own = np.isin(pool, rows)
            if lead.rows is not None and is_own.sum() != len(rows):
                raise InvalidInput("the rows of a training job must be distinct rows of its pool.")
            weights.append(np.where(is_own, own, 0.0))
        return Adam(
            self.stack,
            self._feed(pools, weights),
            self.objective,
            seeds=[lead.shuffle_seed for lead in self.leads],
            max_epochs=job.max_epochs,
            batch_size=job.batch_size,
            learning_rate=job.learning_rate,
            n_rows=len(pools[0]),
        )

    def _validation(self) -> Callable[[], Tensor] | None:
        """A function that gives every network's weighted loss on its validation rows, (G, M)."""
        if self.example.val_rows is None:
            return None
        val_rows = [lead.val_rows for lead in self.leads if lead.val_rows is not None]
        feed = self._feed(val_rows, [self.data.sample_weight[rows] for rows in val_rows])

        def loss() -> Tensor:
            total = torch.zeros_like(self.objective.l2)
            weight = torch.zeros_like(total)
            for x, y, base in feed.in_order(_VALIDATION_ROWS):
                row_weights = self.objective.row_weights(y, base)
                total += (row_weights * self.stack.loss.value(self.stack.logits(x), y)).sum(1)
                weight += row_weights.sum(1)
            return total / weight

        return loss

    @torch.no_grad()
    def run(self, report: Report) -> dict[int, TrainingResult]:
        """Train, keep each network's best epoch where validation rows are watched, balance, and hand over."""
        solver, validate = self._solver(), self._validation()
        watch = _Watch(
            torch.full_like(self.objective.l2, np.inf),
            self.stack.flat.clone() if validate else self.stack.flat,
            torch.zeros_like(self.objective.l2),
            torch.full_like(self.objective.l2, self.example.max_epochs),
        )
        losses: list[Tensor] = []
        val_losses: list[Tensor] = []
        converged_at = torch.full_like(self.objective.l2, torch.inf)
        for epoch in range(self.example.max_epochs):
            losses.append(solver.step())
            done = solver.converged()
            converged_at = torch.where(done & torch.isinf(converged_at), epoch + 1.0, converged_at)
            if validate:
                val_losses.append(validate())
                done = done | self._keep_best(watch, val_losses[-1], epoch)
            report((epoch + 1) / self.example.max_epochs)
            if (validate or self.example.solver == "lbfgs") and bool((done | ~losses[-1].isfinite()).all()):
                break
        report(1.0)
        flat = watch.best_flat if validate else self.stack.flat
        curves = torch.stack(losses, -1).double().cpu().numpy()  # (G, M, epochs)
        val_curves = (
            torch.stack(val_losses, -1).double().cpu().numpy() if val_losses else np.empty((*curves.shape[:2], 0))
        )
        return self._results(flat, curves, val_curves, watch.stopped_at.cpu().numpy(), converged_at.cpu().numpy())

    def _keep_best(self, watch: _Watch, value: Tensor, epoch: int) -> Tensor:
        """Update the watch with this epoch's validation losses; return the networks that are stopped."""
        running = watch.since_best < _PATIENCE
        better = running & (value < watch.best_value)
        watch.best_value = torch.where(better, value, watch.best_value)
        watch.since_best = torch.where(better, 0.0, watch.since_best + 1)
        chosen = self.stack.spread(better, biases=True)
        watch.best_flat = torch.where(chosen, self.stack.flat, watch.best_flat)
        stopped = watch.since_best >= _PATIENCE
        watch.stopped_at = torch.where(
            running & stopped, torch.full_like(watch.stopped_at, epoch + 1.0), watch.stopped_at
        )
        return stopped

    def _results(
        self,
        flat: Tensor,
        curves: NDArray[np.float64],
        val_curves: NDArray[np.float64],
        stopped_at: NDArray[np.float64],
        converged_at: NDArray[np.float64],
    ) -> dict[int, TrainingResult]:
        results: dict[int, TrainingResult] = {}
        for g, m, weights, biases in self.stack.get_networks(flat):
            job = self.jobs[g][m]
            n_iter = int(min(stopped_at[g, m], converged_at[g, m], curves.shape[2]))
            curve = curves[g, m, :n_iter]
            is_finite = np.isfinite(curve).all() and all(np.isfinite(part).all() for part in (*weights, *biases))
            if not is_finite:
                status = Status.DIVERGED
            elif converged_at[g, m] <= n_iter:
                status = Status.CONVERGED
            elif job.val_rows is not None and stopped_at[g, m] < job.max_epochs:
                status = Status.EARLY_STOPPED
            else:
                status = Status.COMPLETED if job.solver == "adam" else Status.MAX_EPOCHS
            network = Network(
                self.means[g], self.scales[g], tuple(weights), tuple(biases), job.activation, job.standardize
            )
            results[self.groups[g][m]] = TrainingResult(
                network if is_finite else None, status, n_iter, curve, val_curves[g, m, :n_iter]
            )
        for g in range(len(self.groups)):
            self._balance(g, results)
        return results

    def _balance(self, g: int, results: dict[int, TrainingResult]) -> None:
        """Solve the output bias of a group's networks, those of one shape together."""
        lead = self.leads[g]
        rows = lead.balance_rows
        if rows is None:
            rows = self.rows[g] if lead.val_rows is None else np.concatenate([self.rows[g], lead.val_rows])
        X, y, s = self.data.X[rows], self.data.y[rows], self.data.sample_weight[rows]
        usable = y.any() and not y.all()
        for block in self.stack.blocks:
            own = zip(self.groups[g][block.models], self.jobs[g][block.models], strict=True)
            finite = [(p, job, network) for p, job in own if (network := results[p].network) is not None]
            if not finite or not usable:
                continue
            positions, jobs, networks = zip(*finite, strict=True)
            lams = np.array([job.lam for job in jobs])[:, None]
            solve = np.array([job.balance for job in jobs])
            weights = s * np.where(y, lams, 1 - lams)
            raw = stacked_logits(
                X,
                self.means[g],
                self.scales[g],
                [np.stack(layer) for layer in zip(*(n.weights for n in networks), strict=True)],
                [np.stack(layer) for layer in zip(*(n.biases for n in networks), strict=True)],
                lead.activation,
                limit=lead.standardize,
            )
            shifts = np.where(solve, solve_shifts(y, raw, weights), 0.0) if solve.any() else np.zeros(len(positions))
            residuals = relative_residual(y, raw + shifts[:, None], weights)
            for p, network, shift, residual in zip(positions, networks, shifts, residuals, strict=True):
                balanced = replace(network, biases=(*network.biases[:-1], network.biases[-1] + shift))
                results[p] = replace(results[p], network=balanced, shift=float(shift), residual=float(residual))
