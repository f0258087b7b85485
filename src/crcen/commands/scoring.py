"""Scoring rows with a model: the request, checked once; probabilities by chunk; comparison with training rows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import InvalidInput, ReadOptions, TableClassifier
from crcen._support.progress import counted
from crcen._support.text import Values, listed, missing_columns, plural
from crcen.commands import inputs, rules
from crcen.commands.inputs import Data, FittedModel, Source, require, require_input
from crcen.commands.rules import AuditedRows, ClassShares, Prevalence, RowRule, ShiftedModel, Weighting, rule_of
from crcen.commands.split import was_stratified
from crcen.report.checks import selection_of
from crcen.tables.cells import ColumnCells, TableCells, is_missing_mark
from crcen.tables.columns import EncodedTable, why_repeating
from crcen.tables.fingerprint import Fingerprint, Recognition, RowDigest, row_hashes
from crcen.tables.profile import Difference, NewRows
from crcen.theory.limits import UNLIKE_P
from crcen.theory.price import Price
from crcen.theory.rows import Array, Bools, Estimator, Index

Hashes = NDArray[np.uint32]
Chunks: TypeAlias = Iterator[tuple[pd.DataFrame, Array]]  # rows, and the probability of every class, (n, K)

CHUNK_ROWS, _CHUNK_BYTES = 50_000, 2**24  # at a time, and as many as take this memory once encoded
_KINDS = {
    "unseen": "categories that did not occur in training were ignored",
    "unreadable": "cells written otherwise than in training were treated as missing",
    "missing": "missing cells in columns that had none in training were filled",
    "clipped": "values far outside the training range were clipped",
}


def model_rows(model: FittedModel, frame: pd.DataFrame, ignored: set[str]) -> pd.DataFrame | Array:
    """The columns of a table that a model takes, of a type that it takes."""
    names = inputs.input_columns(model) or [name for name in frame.columns if name not in ignored]
    if isinstance(model, TableClassifier):
        return frame[names]
    numbers = frame[names].apply(lambda cells: pd.Series(inputs.numbers_of(cells), index=cells.index))
    for name in names:
        is_number = not (numbers[name].isna() & frame[name].notna()).any()
        require_input(is_number, f"the model takes numbers: column {name} holds other values.")
    return numbers if hasattr(model, "feature_names_in_") else numbers.to_numpy()


def unlike_lines(unlike: Sequence[Difference]) -> list[str]:
    """Differences from training as lines of text."""
    head = ["Differences from training beyond chance:"] if unlike else []
    return [*head, *(f"  {one.sentence}" for one in unlike)]


class RowComparison:
    """Compares rows with the training profile and fingerprint of a model, and counts cells it was not prepared for.

    ``recognises`` looks for training rows, ``keeps_hashes`` keeps a hash of each row, of each cluster at most one
    row is compared with the profile, and with a ``target`` only rows that have a value there are compared and counted.
    A model without a profile, such as a network on plain numbers, cannot compare. Errors call it by ``name``.
    """

    def __init__(
        self,
        model: FittedModel,
        *,
        recognises: bool = False,
        keeps_hashes: bool = False,
        clusters: str | None = None,
        target: str | None = None,
        name: str = "the model",
    ) -> None:
        self._model: Estimator = model  # rows are added only for a `TableClassifier`
        self.clusters, self.name, self._target, self._seen = clusters, name, target, set[object]()
        # Columns whose rare and new values share an input: a new value there is no oddity by itself.
        profile, columns = getattr(model, "profile_", None), getattr(model, "columns_", ())
        self._pooled = {one.name for one in columns if getattr(one, "has_other", False)}
        self._rows = None if profile is None else NewRows(profile, columns)
        self._fingerprint: Fingerprint | None = getattr(model, "fingerprint_", None) if recognises else None
        self._compared: list[tuple[NDArray[np.generic], ...]] = []
        self._cells: dict[str, dict[str, int]] = {kind: {} for kind in _KINDS}
        self._columns = {one.name: one for one in columns}
        self._examples: dict[tuple[str, str], str] = {}  # of a kind and a column
        self._extra: tuple[str, ...] = ()
        self._hashes: list[NDArray[np.uint64]] | None = [] if keeps_hashes else None

    def add(self, frame: pd.DataFrame, encoded: EncodedTable, ignored: set[str]) -> None:
        """Count a chunk: the rows, and what the model's encoder made of them."""
        if self._fingerprint is not None:
            known = True if self._target is None else frame[self._target].notna().to_numpy()
            can, matches = self._fingerprint.compare(hashes := self._model.row_hashes(frame, encoded))
            self._compared.append((hashes[can & known], can, matches))
        if self._hashes is not None:
            self._hashes.append(row_hashes(self._model.columns_, TableCells(frame), encoded.X, 0))
        if self._target is not None and frame[self._target].hasnans:
            frame = frame[frame[self._target].notna()]
            if not len(frame):
                return
            encoded = self._model.encode(frame)
        if self._rows is not None and self.clusters is None:
            self._rows.add(encoded)
        elif self._rows is not None:
            one_each = frame[self._one_each(frame[self.clusters])]
            if len(one_each):
                self._rows.add(self._model.encode(one_each))
        for kind, counts in self._cells.items():
            for name, number in getattr(encoded, kind).items():
                if kind != "unseen" or name not in self._pooled:
                    counts[name] = counts.get(name, 0) + number
                    if (kind, name) not in self._examples:
                        self._examples[kind, name] = self._example(kind, ColumnCells(frame[name]))
        self._extra = tuple(name for name in encoded.extra if name not in ignored)

    def _example(self, kind: str, cells: ColumnCells) -> str:
        """The first cell that is new to training or not read, in brackets; nothing for other kinds."""
        column: Any = self._columns[cells.name]
        if kind not in ("unseen", "unreadable"):
            return ""
        is_known = cells.text.isin(column.categories) if kind == "unseen" else ~np.isnan(column.read(cells))
        odd = cells.text[~is_known].dropna()
        odd = odd[~odd.map(is_missing_mark).to_numpy(dtype=bool)]
        return f' (such as "{str(odd.iloc[0])[:40]}")' if len(odd) else ""

    def _one_each(self, cells: pd.Series) -> Bools:
        """Rows of which no two are of one cluster, each row with the same probability; known clusters are left out."""
        rng, new = np.random.default_rng(len(self._seen)), ~cells.isin(self._seen).to_numpy()
        _, which, sizes = np.unique(cells.astype(str).fillna(""), return_inverse=True, return_counts=True)
        self._seen.update(cells.unique())
        order = rng.permutation(len(cells))
        _, first = np.unique(which.ravel()[order], return_index=True)  # a random row of each cluster
        chosen = np.zeros(len(cells), dtype=bool)
        chosen[order[first]] = rng.random(len(sizes)) < sizes / sizes.max()
        return np.asarray(chosen & new)

    def hashes(self, y: Index, p: Array) -> Hashes:
        """A hash of 32 bits of each row's inputs and label; of its probabilities for a model without columns."""
        mixed = np.concatenate(self._hashes) if self._hashes else np.zeros(len(p), dtype=np.uint64)
        if not self._hashes:
            for column in np.ascontiguousarray(p).view(np.uint64).T:
                mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (y + 1).astype(np.uint64)) * np.uint64(0xBF58476D1CE4E5B9)
        return (mixed >> np.uint64(32)).astype(np.uint32)

    @property
    def notes(self) -> list[str]:
        """A sentence for each kind of cell or column that training did not prepare for, and on copies of rows."""
        notes = []
        if self._rows is None and hasattr(self._model, "columns_"):
            notes.append("this model keeps no profile of its training rows, so these rows were not compared with it")
        for kind, counts in self._cells.items():
            named = [f"{name} {plural(n, 'row')}{self._examples[kind, name]}" for name, n in counts.items()]
            notes += [f"{_KINDS[kind]}: {', '.join(named)}"] if named else []
        if self._extra:
            shown = f"{len(self._extra)} ({listed(self._extra, 5)})"
            notes.append(f"columns that did not occur in training were ignored: {shown}")
        if self._fingerprint is not None and self.clusters is None:
            notes += self._fingerprint.copies(np.concatenate([hashes for hashes, *_ in self._compared]))
        return notes

    def unlike(self, n_alarms: int | None, price: Price, false_alarm_rate: float = UNLIKE_P) -> tuple[Difference, ...]:
        """Differences from training beyond chance; of alarms too, if they were counted on all these rows at a price."""
        if self._rows is None:
            return ()
        if price.positive is None or self.clusters is not None:
            return tuple(self._rows.differences(false_alarm_rate=false_alarm_rate))
        threshold = math.log(price.threshold) - math.log1p(-price.threshold)
        return tuple(self._rows.differences(n_alarms, threshold, false_alarm_rate))

    def reject_training_rows(self, need: str) -> None:
        """Raise an error that states the need if the rows are training rows."""
        found = self.recognition()
        if found is not None and found.status == "seen":
            raise InvalidInput(f"{need}: {found.measured}.")

    def recognition(self, numbers: Index | None = None, is_labelled: Bools | None = None) -> Recognition | None:
        """Whether (labelled) rows are training rows, and whether that depends on the class; None if it is unknown."""
        if self._fingerprint is None:
            return None
        _, can, matches = map(np.concatenate, zip(*self._compared, strict=True))
        if is_labelled is not None:
            can, matches = can[is_labelled], matches[is_labelled]
        return self._fingerprint.judge(can, matches, numbers, self._model.classes_.tolist())


def scored_chunks(
    model: FittedModel, source: Source, comparison: RowComparison, ignored: set[str], chunk_rows: int = CHUNK_ROWS
) -> Chunks:
    """Yield each chunk of a source with the probability of every class, (n, K); a source without rows is rejected."""
    is_empty, names = True, inputs.input_columns(model)
    if isinstance(model, TableClassifier):
        n_columns = sum(len(column.encoded_names) for column in model.columns_)
        chunk_rows = min(chunk_rows, max(1000, _CHUNK_BYTES // (8 * n_columns)))
    for chunk in filter(len, source.chunks(chunk_rows)):
        is_empty = False
        if absent := [name for name in names if name not in chunk.columns]:
            others, sheets = chunk.columns.difference(names), source.parts[0].sheets[1:]
            raise missing_columns(absent, len(names), others, sheets, comparison.name)
        if isinstance(model, TableClassifier):
            encoded = model.encode(chunk)
            comparison.add(chunk, encoded, ignored)
            yield chunk, model.estimator_.predict_proba(encoded.X)
        else:
            yield chunk, model.predict_proba(model_rows(model, chunk, ignored))
    require_input(not is_empty, f"{source.name} has no rows.")


@dataclass(frozen=True, eq=False)
class ScoredTable:
    """Rows of a table with probabilities (n, K), class numbers (−1 without a label), and the columns that were named.

    ``roles`` say which column of ``frame`` has weights, clusters, cohorts or audit probabilities.
    """

    y: Index
    p: Array
    comparison: RowComparison
    frame: pd.DataFrame
    notes: list[str]
    roles: Mapping[str, str]
    repeating: str | None  # column that repeats like an identifier, if no clusters were named

    def dependent_rows(self, instead: str) -> list[str]:
        """A statement if rows may depend on each other and no clusters were named, with what to do ``instead``."""
        rows = f"{self.repeating} repeats like an identifier, and tests assume independent rows"
        return [] if self.repeating is None else [f"{rows}: {instead} {self.repeating}"]

    @cached_property
    def is_labelled(self) -> Bools:
        """Rows with a label."""
        return np.asarray(self.y >= 0)

    def labelled(self, name: str) -> pd.Series:
        """A column of the rows with a label."""
        return self.frame.loc[self.is_labelled, name]

    def amounts(self, role: str) -> Array | None:
        """The amounts of labelled rows in a role, such as "weight"; None if no column has it."""
        return inputs.amounts_of(self.labelled(self.roles[role]), role) if role in self.roles else None

    @property
    def weights(self) -> Array | None:
        """The weights of labelled rows, 1 on average; None if no column has them."""
        return inputs.weights_of(self.labelled(self.roles["weight"])) if "weight" in self.roles else None

    @property
    def clusters(self) -> Index | None:
        """The clusters of labelled rows, if they were named."""
        return inputs.cluster_numbers(self.labelled(self.roles["clusters"])) if "clusters" in self.roles else None

    @cached_property
    def audit_probabilities(self) -> Array | None:
        """The probability with which each row was chosen for a label, if it was named."""
        name = self.roles.get("audit_probability")
        return None if name is None else inputs.audit_probabilities(self.frame, name, self.is_labelled)


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows with a label, at the stated class shares, and the inputs of their tests."""

    scored: ScoredTable
    model: FittedModel  # at these shares
    shares: ClassShares | None
    p_all: Array  # of all rows, (n, K)
    weights: Array | None  # over the audit probabilities, if there are any
    notes: list[str]
    options: Values  # of `crcen.write_report` and `crcen.report.evidence.Evidence`

    @property
    def y(self) -> Index:
        """Class numbers."""
        return self.scored.y[self.scored.is_labelled]

    @property
    def p(self) -> Array:
        """Probabilities, (n, K)."""
        return self.p_all[self.scored.is_labelled]

    def inputs(self, model: FittedModel, *aside: str) -> pd.DataFrame | Array:
        """Columns that a model takes, if all columns were kept; those ``aside`` are no inputs."""
        return model_rows(model, self.scored.frame[self.scored.is_labelled].reset_index(drop=True), {*aside})

    def audited(self, rule: RowRule, confidence: float) -> AuditedRows | None:
        """Bounds on recall and missed rows, if labels were drawn with known probabilities."""
        e, both = self.scored.audit_probabilities, "weight must be left out: bounds from audits count every row once"
        inputs.require(e is None or "weight" not in self.scored.roles, f"{both}.", "weight", "audit_probability")
        return None if e is None else AuditedRows.of(rule, self.scored.y, self.p_all, e, confidence)


@dataclass(frozen=True, eq=False)
class Judging:
    """A model on a table: the request, resolved and checked before any row is read.

    ``target`` is None if the table has none. ``roles`` are the columns named by parameters, ``groups`` the columns
    whose values are compared.
    """

    model: FittedModel
    source: Source
    target: str | None
    rule: RowRule
    roles: dict[str, str]
    groups: list[str]

    @classmethod
    def of(
        cls,
        model: FittedModel | str | Path,
        data: Data,
        read: ReadOptions | None,
        weighting: Weighting = None,
        costs: rules.CostsLike = None,
        *,
        target: str | None = None,
        needs_target: bool = False,
        roles: Mapping[str, str | None] | None = None,
        groups: str | Sequence[str] = (),
        needs_price: bool = False,
        is_strict: bool = True,
        **how: Any,
    ) -> "Judging":
        """From the parameters of a command, which may need labels; ``how`` are those of `rule_of`."""
        fitted = inputs.model_of(model)
        source = inputs.source_of(data, read, fitted, is_strict=is_strict)
        own = getattr(fitted, "target_name_", None)
        used = {column.name for column in getattr(fitted, "columns_", ())}  # y may have the name of an input
        has_target = needs_target or target is not None or own in {*source.columns} - used
        label = inputs.target_of(target, fitted, source) if has_target else None
        rule = rule_of(fitted, source, weighting, costs, is_labelled=needs_target, **how)
        require(rule.goal is None or not needs_price, f"{rule.goal} is not a price: state a price.", "weighting")
        compared = inputs.group_columns(groups, source, label)
        return cls(fitted, source, label, rule, inputs.role_columns(source, label, roles or {}), compared)

    def score(
        self,
        verbose: int = 0,
        *,
        reads_labels: bool = True,
        keeps_all: bool = False,
        digest: RowDigest | None = None,
        **compared: Any,
    ) -> ScoredTable:
        """Score all rows, keep the named columns or all of them, and give every row to a digest.

        ``compared`` are parameters of `RowComparison`.
        """
        model, source, target = self.model, self.source, self.target if reads_labels else None
        comparison = RowComparison(model, clusters=self.roles.get("clusters"), **compared)
        ignored = {*self.roles.values(), *self.groups, *([] if self.target is None else [self.target])}
        numbers, scores, kept = [], [], []
        # Chunks of wide tables are too short to tell how often identifiers repeat, which have no fractions.
        first: list[pd.DataFrame] = []
        with counted("rows", source.n_rows, visible=bool(verbose)) as done:
            for chunk, p in scored_chunks(model, source, comparison, ignored):
                if comparison.clusters is None and sum(map(len, first)) < CHUNK_ROWS:
                    first.append(chunk.loc[:, [kind.kind != "f" for kind in chunk.dtypes]] if first else chunk)
                y = np.full(len(p), -1, dtype=np.int64)
                if target is not None:
                    known = chunk[target].notna().to_numpy()
                    y[known] = inputs.labels_as(chunk[target][known], model.classes_, target)
                if digest is not None:
                    digest.add(chunk)
                numbers.append(y)
                scores.append(p)
                kept.append(chunk if keeps_all else chunk[[name for name in chunk.columns if name in ignored]])
                done(len(p))
        y, p, frame = np.concatenate(numbers), np.concatenate(scores), pd.concat(kept, ignore_index=True)
        found = ScoredTable(y, p, comparison, frame, [], self.roles, _repeating_column(model, first, ignored))
        found.notes.extend([*source.notes, *comparison.notes, *found.dependent_rows("use --clusters")])
        found.notes.extend(inputs.weight_notes(model, self.roles.get("weight")))
        return found

    def labelled(self, verbose: int, prevalence: Prevalence, *, stratified: bool = False, **how: Any) -> LabelledRows:
        """Score all rows for tests of those with a label, of several classes; ``how`` as in `score`."""
        scored = self.score(verbose, target=None if "audit_probability" in self.roles else self.target, **how)
        known, e, target, labels = scored.is_labelled, scored.audit_probabilities, str(self.target), self.rule.labels
        y, name, own = scored.y[known], self.source.name, scored.frame.get(self.roles.get("clusters", ""))
        require_input(len(y), f"{name} has no row with a value of {target}.")
        needed = f"evaluating a model needs rows of {'both' if len(labels) == 2 else 'several'} classes"
        require_input(len(np.unique(y)) > 1, f"{needed}: {name} has only {labels[y[0]]} in {target}.")
        column = self.roles.get("weight") if prevalence == "auto" else None
        each = None if column is None else inputs.weights_of(scored.frame[column])
        shares = ClassShares.of(prevalence, self.model, scored.p, own, each)
        model = self.model if shares is None else cast("FittedModel", ShiftedModel(self.model, shares))
        p, weights = scored.p if shares is None else shares.moved(scored.p), scored.weights
        notes = []
        if not known.all():
            done = "were left out" if e is None else "are unlabelled, not negative"
            notes.append(f"{int((~known).sum()):,} rows without a value of {target} {done}")
        absent = [str(label) for k, label in enumerate(labels) if not (y == k).any()]
        notes += [f"{listed(absent)} {'has' if len(absent) == 1 else 'have'} no row here"] if absent else []
        if not stratified and was_stratified(self.source, target):
            stratified = True
            fixed = "crcen split fixed the class counts of these rows"
            notes.append(f"{fixed}; the test of the key equation allows for that")
        if e is not None:
            weights = (1.0 if weights is None else weights) / e[known]
        elif (column := rules.AUDIT_COLUMNS[1]) in self.source.columns:
            notes.append(f"{column} is not used: if labels were drawn with these probabilities, use --audited")
        options: Values = {"is_audited": e is not None, "selection": selection_of(model, known, p)}
        options |= {"clusters": scored.clusters, "is_stratified": stratified}
        return LabelledRows(scored, model, shares, p, weights, notes, options)


def _repeating_column(model: FittedModel, chunks: list[pd.DataFrame], ignored: set[str]) -> str | None:
    """The column by which rows may depend on each other: that of clusters in training, or one like an identifier."""
    if not chunks:
        return None
    name = getattr(model, "clusters_name_", None)
    if name in chunks[0].columns:
        return str(name) if chunks[0][name].duplicated().any() else None
    frame = pd.concat(chunks, join="inner") if len(chunks) > 1 else chunks[0]
    kinds = {str(one): "number" if frame[one].dtype.kind in "iuf" else "text" for one in frame.columns}
    others = (one for one in kinds if one not in ignored)
    return next((one for one in others if why_repeating(ColumnCells(frame[one]), kinds[one])), None)
