"""One stack from initial parameters to balanced results: the training loop of all solvers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.theory.balance import class_shifts, relative_residual, solve_shift
from crcen.theory.price import sigmoid, softmax
from crcen.theory.rows import Array, Index
from crcen.training.device import outputs_on
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState
from crcen.training.network import Network, NetworkGroup, log_sigmoid
from crcen.training.passes import logits_of_batches
from crcen.training.recipe import ONE_AGAINST_ALL
from crcen.training.rows import VALIDATION_ROWS, RowFeed, TrainingData, float_type
from crcen.training.solvers import LBFGS, Adam, Objective, compiled
from crcen.training.stack import Stack

# Called with the completed share of a stack's work; raises to stop the run.
Report = Callable[[float], None]

# Epochs without a lower validation loss before a network is stopped.
_PATIENCE = 10
# Validation rows that a GPU processes at a time, and first hidden units of all of them.
_ROWS_ON_A_GPU, _UNITS_AT_ONCE = 2**13, 2**24
# Logits of the balance solve at a time; it holds about ten times as many numbers.
_LOGITS_AT_ONCE = 2**24


class StackRun:
    """One stack from initial parameters to results; C classes."""

    def __init__(self, groups: tuple[tuple[int, ...], ...], jobs: Sequence[TrainingJob], data: TrainingData) -> None:
        self.groups, self.data = groups, data
        self.jobs = [[jobs[p] for p in group] for group in groups]
        self.example = self.jobs[0][0]
        self.leads = [group[0] for group in self.jobs]  # the jobs of a group share rows and encoding
        self.dtype = float_type(self.example.solver_kind)
        self.rows = [job.trained(data.n_rows) for job in self.leads]
        self.encodings = [data.encoding(self.example, rows) for rows in self.rows]
        self.is_one_against_all = self.example.loss == ONE_AGAINST_ALL
        # Weight of a row and of all rows of each class in every network, (G, M, C).
        self.class_weights = np.array([[job.class_weights for job in group] for group in self.jobs])
        labels, s = range(data.n_classes), data.sample_weight
        counts = np.array([[s[rows[data.y[rows] == label]].sum() for label in labels] for rows in self.rows])
        self.class_sums = self.class_weights * counts[:, None]
        self.stack = self._initial_stack()
        self.objective = self._objective()

    def _initial_stack(self) -> Stack:
        job, device = self.example, self.data.device
        network = job.hidden, job.activation, job.loss, self.dtype, device
        n_groups, n_models, size = len(self.groups), len(self.jobs[0]), self.encodings[0].size
        scaled = bool(job.column_scales)
        stack = Stack(n_groups, n_models, size, *network, scaled=scaled, n_outputs=job.n_outputs)
        seeds = torch.tensor([[one.seed & (2**63 - 1) for one in group] for group in self.jobs], device=device)
        stack.initialise(seeds, torch.from_numpy(self._prior()).to(device, self.dtype))
        return stack

    def _prior(self) -> Array:
        """Initial output biases (G, M, outputs), from the weighted class shares."""
        logs = np.log(self.class_sums)
        if self.example.n_outputs == 1:
            return np.asarray(logs[..., 1:] - logs[..., :1])
        if self.is_one_against_all:
            return np.asarray(logs - np.log(self.class_sums.sum(axis=2, keepdims=True) - self.class_sums))
        return np.asarray(logs - logs.mean(axis=2, keepdims=True))

    def _objective(self) -> Objective:
        by_class = self.class_weights / self.class_sums.sum(axis=2, keepdims=True)
        l2 = np.array([[job.l2 for job in group] for group in self.jobs])
        parts = np.ascontiguousarray(by_class.transpose(0, 2, 1)), l2
        return Objective(*(torch.from_numpy(part).to(self.data.device, self.dtype) for part in parts))

    def solver(self) -> Adam | LBFGS:
        """The solver, before its first step."""
        feed = RowFeed(self.data, self.rows, self.encodings, self.dtype)
        if not self.example.draws_batches:
            return LBFGS(self.stack, feed, self.objective, tol=self.example.tol)
        seeds = [lead.shuffle_seed for lead in self.leads]
        adam = Adam(self.stack, feed, self.objective, self.example, seeds, len(self.rows[0]))
        if self.example.start:
            self._load_states(adam)
        return adam

    @torch.no_grad()
    def run(self, report: Report) -> dict[int, TrainingResult]:
        """Train, keep each network's best epoch if there are validation rows, balance, and return the results."""
        job, first = self.example, self.example.first_epoch
        epochs = job.last_epoch
        solver, validation = self.solver(), self.validation()
        losses: list[Tensor] = []
        records: dict[int, Tensor] = {}
        converged_at = torch.full_like(self.objective.l2, torch.inf)
        for epoch in range(first + 1, epochs + 1):
            losses.append(solver.step())
            done = solver.converged()
            converged_at = torch.where(done & torch.isinf(converged_at), float(epoch), converged_at)
            if validation and job.stops_early:
                done = done | validation.keep_best(epoch)
            is_over = False
            if job.stops_early or not job.draws_batches:
                is_over = bool((done | ~losses[-1].isfinite()).all())
            if validation and job.record_every and (epoch % job.record_every == 0 or epoch == epochs or is_over):
                records[epoch] = validation.logits()
            report((epoch - first) / (epochs - first))
            if is_over:
                break
        report(1.0)
        if isinstance(solver, Adam) and job.leaves_state:
            results = self._states(solver, first + len(losses))
        else:
            results = self._results(losses, validation if job.stops_early else None, converged_at.cpu().numpy())
        if validation and records:  # the results have synchronised the device
            self._add_records(results, records, validation)
        return results

    def _add_records(
        self, results: dict[int, TrainingResult], records: dict[int, Tensor], validation: "_Validation"
    ) -> None:
        """Add the validation logits of some epochs, as `Network.logits` gives them, to the results."""
        for g, group in enumerate(self.groups):
            chunks, size = torch.stack([record[g] for record in records.values()], 1), validation.sizes[g]
            own = -(-size // chunks.shape[2])  # each group's rows are split evenly into chunks, then padded
            logits = chunks[:, :, :, :own].flatten(2, 3)[:, :, :size].numpy()  # (M, records, rows[, C])
            if self.is_one_against_all:
                logits = log_sigmoid(logits)
            for m, position in enumerate(group):
                results[position] = replace(
                    results[position], recorded_epochs=tuple(records), val_logits=np.asarray(logits[m])
                )

    def _load_states(self, adam: Adam) -> None:
        """Copy the states from which the jobs start into the stack and its solver."""
        places = self.stack.places()[0]  # (G, M, parameters)
        states = [[job.start.values for job in group if job.start] for group in self.jobs]
        for flat, values in zip(adam.state(), np.moveaxis(np.array(states), 2, 0), strict=True):
            flat[places] = torch.from_numpy(values).to(flat.device, flat.dtype)

    def _states(self, adam: Adam, epoch: int) -> dict[int, TrainingResult]:
        """The state of every network, without the network."""
        places = self.stack.places()[0]
        values = torch.stack([flat[places] for flat in adam.state()], dim=2).cpu().numpy()  # (G, M, 3, parameters)
        n_iter, results = epoch - self.example.first_epoch, dict[int, TrainingResult]()
        for position, own in zip(np.ravel(self.groups).tolist(), values.reshape(-1, *values.shape[2:]), strict=True):
            status = Status.COMPLETED if np.isfinite(own).all() else Status.DIVERGED
            results[position] = TrainingResult(None, status, n_iter, np.empty(0), state=TrainingState(epoch, own))
        return results

    def validation(self) -> "_Validation | None":
        """The validation rows, if any."""
        rows = [lead.watched for lead in self.leads if lead.watched is not None]
        at_once = VALIDATION_ROWS
        if self.data.device.type == "cuda":  # few large products, within limits
            at_once = max(at_once, min(_ROWS_ON_A_GPU, _UNITS_AT_ONCE // (len(self.groups) * self.stack.width)))
        return _Validation(self, rows, at_once) if rows else None

    def _results(
        self, losses: list[Tensor], watch: "_Validation | None", converged_at: Array
    ) -> dict[int, TrainingResult]:
        """Results of all networks, with the best epochs of a watch."""
        results: dict[int, TrainingResult] = {}
        curves = torch.stack(losses, -1).double().cpu().numpy()  # (G, M, epochs)
        val_curves = np.empty((*curves.shape[:2], 0))
        flat, stopped_at = self.stack.flat, np.full_like(converged_at, np.inf)
        if watch:
            flat, stopped_at = watch.best_flat, watch.stopped_at.cpu().numpy()
            val_curves = torch.stack(watch.losses, -1).double().cpu().numpy()
        ends = np.minimum(stopped_at, converged_at) - self.example.first_epoch
        n_iters = np.minimum(ends, curves.shape[2]).astype(np.int64)
        # Whether all training losses, or any validation loss, are finite up to an epoch (index 0: before the first).
        shape = (*curves.shape[:2], 1)
        all_fine = np.concatenate([np.ones(shape, bool), np.logical_and.accumulate(np.isfinite(curves), axis=2)], 2)
        any_fine = np.concatenate([np.zeros(shape, bool), np.logical_or.accumulate(np.isfinite(val_curves), axis=2)], 2)
        weights, biases = self.stack.arrays(flat)
        parameters = [*weights, *biases]
        finite = np.all([np.isfinite(p).reshape(*p.shape[:2], -1).all(axis=2) for p in parameters], axis=0)
        for g, group in enumerate(self.groups):
            shifts, residuals = self._balance(g, weights, biases, finite[g])
            solved = [*(b[g] for b in biases[:-1]), biases[-1][g] + shifts]
            # Lists of views: indexing an array thousands of times is slow.
            own_weights = zip(*(list(w[g]) for w in weights), strict=True)
            layers = zip(own_weights, zip(*map(list, solved), strict=True), strict=True)
            for m, (position, own) in enumerate(zip(group, layers, strict=True)):
                n_iter = int(n_iters[g, m])
                # With validation rows the best epoch is kept, whatever happened after it.
                has_best = any_fine[g, m, min(n_iter, val_curves.shape[2])]
                is_finite = bool(finite[g, m] and (all_fine[g, m, n_iter] or has_best))
                status = self._status(is_finite, converged_at[g, m], stopped_at[g, m], n_iter)
                network = Network(self.encodings[g], *own, self.example.activation, self.is_one_against_all)
                results[position] = TrainingResult(
                    network if status.is_finite else None,
                    status,
                    n_iter,
                    curves[g, m, :n_iter],
                    val_curves[g, m, :n_iter],
                    shifts[m],
                    float(residuals[m]),
                )
        return results

    def _status(self, is_finite: bool, converged_at: float, stopped_at: float, n_iter: int) -> Status:
        if not is_finite:
            return Status.DIVERGED
        if converged_at <= n_iter:
            return Status.CONVERGED
        if stopped_at < self.example.last_epoch:
            return Status.EARLY_STOPPED
        return Status.COMPLETED if self.example.draws_batches else Status.MAX_EPOCHS

    def _balance(
        self, g: int, weights: list[Array], biases: list[Array], finite: NDArray[np.bool_]
    ) -> tuple[Array, Array]:
        """Shifts of the output biases (M, outputs) and residuals after them (M,), for the networks of a group."""
        lead, data = self.leads[g], self.data
        shifts, residuals = np.zeros((len(finite), lead.n_outputs)), np.full(len(finite), np.nan)
        wanted = np.flatnonzero(finite & np.array([job.balance for job in self.jobs[g]]))
        rows = lead.balanced(data.n_rows)
        y, s = data.y[rows], data.sample_weight[rows]
        if not wanted.size:
            return shifts, residuals
        numbers = wanted.size * lead.n_outputs * len(rows)
        for own in np.array_split(wanted, min(wanted.size, -(-numbers // _LOGITS_AT_ONCE))):
            parameters = tuple(w[g][own] for w in weights), tuple(b[g][own] for b in biases)
            group = NetworkGroup(self.encodings[g], *parameters, lead.activation)
            for k, outputs in zip(own, outputs_on(data.device, group, data.X[rows]).cpu().numpy(), strict=True):
                class_weights = self.class_weights[g, k]
                row_weights = class_weights[y] * s
                if lead.n_outputs == 1:
                    shifts[k] = solve_shift(y == 1, outputs, row_weights)
                    residuals[k] = relative_residual(y == 1, outputs + shifts[k], row_weights)
                    continue
                if self.is_one_against_all:  # Σ w (1{y=k} − σ(o_k)) = 0 for each class: C binary solves
                    shifts[k] = [solve_shift(y == c, own, row_weights) for c, own in enumerate(outputs.T)]
                    errors = -sigmoid(outputs + shifts[k])
                else:
                    shifts[k] = class_shifts(y, outputs, class_weights, s)
                    errors = -softmax(outputs + shifts[k])
                errors[np.arange(len(y)), y] += 1.0
                residuals[k] = np.abs(row_weights @ errors).max() / row_weights.sum()
        return shifts, residuals


class _Validation:
    """Validation rows, encoded once, and the best epoch of each network on them, (G, M)."""

    def __init__(self, run: StackRun, rows: list[Index], rows_at_once: int) -> None:
        feed = RowFeed(run.data, rows, run.encodings, run.dtype)
        index = feed.index_in_order(rows_at_once)
        self.stack, self.objective, self.sizes = run.stack, run.objective, list(map(len, rows))
        self.batches = [(x.clone(), y, base) for x, y, base in feed.batches(index)]
        self.ramps = feed.ramps(index, with_readers=False)
        self.losses: list[Tensor] = []
        self.best_flat = self.stack.flat.clone() if run.example.stops_early else self.stack.flat
        self.best_value = self.stopped_at = torch.full_like(self.objective.l2, np.inf)
        self.since_best = torch.zeros_like(self.objective.l2)

    def keep_best(self, epoch: int) -> Tensor:
        """Keep the parameters of networks whose weighted loss is the lowest so far; return which have stopped."""
        total, weight = torch.zeros_like(self.objective.l2), torch.zeros_like(self.objective.l2)
        for logits, (_, y, base) in zip(self._outputs(), self.batches, strict=True):
            row_weights = self.objective.row_weights(y, base)
            total += (row_weights * self.stack.row_loss(logits, y)).sum(1)
            weight += row_weights.sum(1)
        self.losses.append(total / weight)
        running = self.since_best < _PATIENCE
        better = running & (self.losses[-1] < self.best_value)
        self.best_value = torch.where(better, self.losses[-1], self.best_value)
        self.since_best = torch.where(better, 0.0, self.since_best + 1)
        self.best_flat = torch.where(self.stack.spread(better, biases=True), self.stack.flat, self.best_flat)
        stopped = self.since_best >= _PATIENCE
        self.stopped_at = torch.where(running & stopped, float(epoch), self.stopped_at)
        return stopped

    def logits(self) -> Tensor:
        """Logits of every network, (G, M, chunks, rows[, C]), float32, copied to the host asynchronously."""
        logits = torch.stack([self.stack.by_network(own) for own in self._outputs()], dim=2)
        return logits.to("cpu", torch.float32, non_blocking=True)

    def _outputs(self) -> Tensor:
        """Logits (chunks, G, rows, M·C)."""
        stack, chunks = self.stack, [x for x, _, _ in self.batches]
        logits = compiled(logits_of_batches) if stack.device.type == "cpu" else logits_of_batches
        return logits(stack.workspace(chunks[0].shape[1]), chunks, self.ramps)
