"""fit_files: from a table larger than memory to a saved model with held-out evidence, here or on a Ray cluster."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone

import crcen
from crcen import CommitteeClassifier, CRCENClassifier, ReadOptions, TableClassifier, save
from crcen._support.files import check_writable
from crcen._support.progress import progress_bar
from crcen._support.text import attributes, listed, plural
from crcen.commands import inputs
from crcen.commands.evaluate import TableEvaluation, evaluate_table
from crcen.commands.fit import FittedTable, Options
from crcen.commands.inputs import Data, Label, check, is_share, require, require_input
from crcen.commands.results import note_lines
from crcen.commands.rules import CostsLike, Weighting, stated_weighting
from crcen.scale import mixed_table
from crcen.scale.committee import BinnedRows, GrownTrees, StackingRows, TreePlan, grow_trees, plan_trees, stack_members
from crcen.scale.memory import MemoryBound
from crcen.scale.mixed_table import EncodedRows, FingerprintOfAll, FrameSample, HeldOutRows, LearnedColumns, TableSurvey
from crcen.scale.sources import OPEN_BYTES, ArrowSource, check_counts, lock_storage, rows_together
from crcen.tables.cells import TableCells, as_text
from crcen.tables.columns import BooleanColumn, DroppedColumn, NumberColumn, encode_table, results_of_predict
from crcen.tables.leaks import Signs, find_signs
from crcen.tables.locations import masked
from crcen.tables.profile import held_out_sums, profile_of, training_scores, typical_table
from crcen.tables.reading import STREAM_BYTES, Table, dataset_of, index_columns, kind_of, open_table
from crcen.tables.text import BLOCK_BYTES, BLOCKS_AHEAD, TextPart
from crcen.theory.checks import check_whole_number
from crcen.theory.goals import goal_of
from crcen.theory.price import Labels
from crcen.theory.rows import Estimator, LabelArray

Storage = str | Path | None
ENGINES, LEARNERS = ("stream", "ray"), ("committee", "networks")
_FEWEST_TO_STACK = 10  # held-out rows of each class
_OPEN_CELL_BYTES = 16  # of a row group that is read, stored and decoded; two may be open at a time
_COLUMN_BYTES = 200_000  # about what a column takes in samples, readers and writers beside its cells
_NO_EVIDENCE = "No evidence from held-out rows: use crcen evaluate on other rows."
_FINGERPRINT_ROWS, _FIRST_ROWS, _SCORED_ROWS = 65_536, 1000, 8192
_FIRST_BYTES, _SMALLEST_BLOCK = 2**24, 2**18
_WORKER_SETTINGS = ("cpus_per_worker", "max_failures", "worker_timeout", "verbose")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FilesFit(FittedTable):
    """A model fitted to files; prints itself. ``model.estimator_`` is the committee or the network."""

    engine: str
    network: CRCENClassifier | None  # also if it is a member of a committee; None if a trial got no weight
    n_held_out: int  # rows that were not trained on
    evidence: TableEvaluation | None = None  # on held-out rows that were used for nothing else

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        model, one, members = self.model, self.network, getattr(self.model.estimator_, "leaderboard_", ())
        network = None if one is None else {"hidden": [*one.recipe_.hidden], "l2": one.l2, "epochs": one.n_iter_}
        return {
            **self._model_values(float(model.weighting_.counts.sum())),
            "leaderboard": [attributes(one, "name weight log_loss settings") for one in members],
            "network": network,
            "key_equation": attributes(model.key_equation_, "residual rows"),
            "loss_curve": [] if one is None else one.loss_curve_.tolist(),
            "held_out": attributes(self, "rows=n_held_out evidence"),
            "engine": self.engine,
        }

    def __str__(self) -> str:
        model, network = self.model, self.network
        equation = "Key equations" if model.weighting_.positive is None else "Key equation"
        n_rows = f"{model.weighting_.counts.sum():,.0f} training rows, {plural(self.n_held_out, 'row')} held out"
        loss = "" if network is None else f"; {plural(network.n_iter_, 'epoch')}, loss {network.loss_curve_[-1]:.5f}"
        lines = [
            f"{self.data}: {n_rows}; {self._class_counts()}",
            *([_NO_EVIDENCE] if self.evidence is None else ["", str(self.evidence), ""]),
            *self._column_lines(),
            *self._price_lines(),
            f"Trained   by {self.engine} in {self.seconds:.0f} s{loss}",
            *(
                f"  {one.name:<10} weight {one.weight:.2f}, log loss {one.log_loss:.4g}: {'; '.join(one.settings)}"
                for one in getattr(model.estimator_, "leaderboard_", ())[:-1]
            ),
            f"{equation} on {model.key_equation_.rows}: residual {model.key_equation_.residual:.1e}, by construction.",
            *note_lines(self.notes),
        ]
        return "\n".join([*lines, *([] if self.path is None else [f"Saved to {self.path}"])])


def fit_files(
    data: Data,
    *,
    target: str,
    engine: str = "stream",
    positive: Label | None = None,
    weighting: Weighting = "balanced",
    costs: CostsLike = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    clusters: str | None = None,
    hold_out: float = 0.05,
    learner: str | None = None,
    memory: int | None = None,
    epochs: int = 5,
    workers: int = 2,
    storage: str | Path | None = None,
    fingerprint: bool = True,
    random_state: int | None = 0,
    verbose: int = 0,
    out: str | Path | None = None,
    read: ReadOptions | None = None,
    **parameters: Any,
) -> FilesFit:
    """Fit a committee of a network and boosted trees to a table that need not fit in memory, and save it.

    Columns are those of `crcen.TableClassifier`. Encoded rows are written to a temporary folder (about eight bytes per
    number), unless all are complete numbers in Parquet files. Copies of a row are held out together.

    Parameters
    ----------
    data : str, Path, list of them, or data frame
        Anything that `crcen.tables.reading.open_table` takes, also databases and lazy frames.
    target, positive, drop, keep, categorical, clusters, fingerprint, random_state, verbose, out, read
        As in `crcen.fit_table`.
    engine : {"stream", "ray"}
        In this process (`crcen.fit_stream`), or on a Ray cluster (`crcen.fit_ray`), after columns are encoded here.
    weighting, costs
        As in `crcen.fit_table`, without goals.
    hold_out : float, default=0.05
        Share of rows held out, at most one half; with 0 only a network is fitted.
    learner : {"committee", "networks"}, optional
        A network and LightGBM's trees, or the network alone; by default the committee if rows are held out.
    memory : int, optional
        Limit of the memory of this process in bytes, libraries included; by default half of the free memory is added.
        With a small bound parts of the work use fewer rows. With Ray: bytes for the rows of the trees of all workers.
    epochs, workers : int
        Passes of the network over the rows; with Ray, how many workers train. Of a committee, a network is left out if
        a trial network on a sample gets no weight, unless ``parameters`` are given for it.
    storage : str or Path, optional
        A folder for checkpoints, from which the same call continues, and scratch files; with Ray all machines see it.
    **parameters
        Any other parameter of `crcen.fit_stream` or `crcen.fit_ray` but ``skip_bad_files``, also of the network.
    """
    check("engine", engine, engine in ENGINES, f"be one of {', '.join(ENGINES)}")
    check_whole_number(epochs, "epochs", 1)
    in_memory = f"{weighting!r} is for tables in memory, not for engine={engine}: state a price."
    require(goal_of(weighting) is None, in_memory, "engine")
    is_share_of_half = not isinstance(hold_out, bool) and (hold_out in (0, 0.5) or is_share(hold_out, 0.0, 0.5))
    check("hold_out", hold_out, is_share_of_half, "be a share between 0 and 0.5, such as 0.05 or 5%")
    learner = learner or ("committee" if hold_out else "networks")
    check("learner", learner, learner in LEARNERS, f"be one of {', '.join(LEARNERS)} with engine={engine}", "engine")
    is_networks = learner == "networks"
    alone = "clusters must go with held-out rows, among which they stay together: got hold_out=0."
    require(hold_out or clusters is None, alone, "clusters", "hold_out")
    require(hold_out or is_networks, "a committee is combined on held-out rows: got hold_out=0.", "hold_out")
    together = "memory is for the trees of a committee with engine='ray': got learner='networks'."
    require(memory is None or not is_networks or engine == "stream", together, "memory", "learner")
    is_size = memory is None or (isinstance(memory, int) and not isinstance(memory, bool) and memory >= 1)
    check("memory", memory, is_size, "be a number of bytes above 0")
    if out is not None:
        check_writable(out, data, costs)
    if engine == "ray":
        from crcen.scale import ray as cluster  # loads torch
    start = time.perf_counter()
    bound = MemoryBound(memory if engine == "stream" else None)
    table = open_table(data, read)
    inputs.check_column(target, table, "the target")
    inputs.role_columns(table, target, {"clusters": clusters})
    seed = int(random_state or 0)
    named: Options = {"drop": tuple(drop), "keep": tuple(keep), "categorical": tuple(categorical)}
    index = index_columns(table.schema) if table.kind == "parquet" else []
    for what, given in named.items():
        for name in given:
            inputs.check_column(name, table, what)
    dropped = {
        **dict.fromkeys(_columns_of_type(table, pa.types.is_nested), "holds lists or records, not single values"),
        **dict.fromkeys(sorted({*index} - {*keep, *categorical}), "the index of a pandas data frame"),
        **results_of_predict([name for name in table.columns if name != target], {*keep, *categorical}),
        **dict.fromkeys(drop, "asked for"),
        **({} if clusters is None else {clusters: inputs.ROLES["clusters"]}),
    }
    require(target not in drop, f"drop must name other columns than the target: got {target!r}.", "drop")
    dropped.pop(target, None)
    names = tuple(name for name in table.columns if name != target and name not in dropped)
    require_input(names, f"{table.name} holds no column but {target} to learn from.")
    bound.reserve(_COLUMN_BYTES * len(names))
    _read_ahead(table, _FIRST_BYTES)
    first = next(table.chunks(_FIRST_ROWS, [*names, target]))
    raw_bytes = max(8.0 * len(first.columns), first.memory_usage(deep=True).sum() / max(1, len(first)))
    n_read = 1.2 * (table.n_rows or inf)
    parts = {"frame": 5 * raw_bytes, "sample": 4 * raw_bytes}
    sizes = bound.rows({"frame": n_read, "sample": n_read}, parts, _row_bytes(raw_bytes, len(names), len(names) + 1))
    bound.expected["read"] = min(_read_ahead(table, bound.share("read")), raw_bytes * (table.n_rows or inf))
    survey = TableSurvey(names, target, frozenset(categorical), seed, min(mixed_table.SAMPLE_ROWS, sizes["sample"]))
    with progress_bar("reading the table", visible=bool(verbose)) as show:
        mixed_table.survey_table(table, survey, bound.releasing(show), sizes["frame"])
    labels, positive, found = inputs.class_labels(survey.labels, target, positive, table.name)
    classes = sorted(set(labels.values()))
    counts = [sum(survey.labels[cell] for cell, label in labels.items() if label == one) for one in classes]
    inputs.check_class_sizes(dict(zip(classes, counts, strict=True)), target)
    price = stated_weighting(weighting, costs, classes, target)
    declared = _columns_of_type(table, pa.types.is_dictionary)
    learned = mixed_table.learn_columns(survey, keep=keep, categorical=categorical, declared=declared, seed=seed)
    notes = [*table.notes, *found]
    notes += [f"{name} was the index of a pandas data frame and is left out" for name in index if name in dropped]
    notes += [inputs.missing_note(survey.n_unlabelled, target)] if survey.n_unlabelled else []
    settings: Options = {"epochs": epochs, "pos_label": positive, "random_state": random_state, "verbose": verbose}
    settings |= parameters
    sample = survey.sample.frame
    survey.sample = FrameSample(1, 0)
    n_columns = sum(len(column.encoded_names) for column in learned.used)
    cpus = parameters.get("cpus_per_worker", 1)
    check_counts(workers=workers, cpus_per_worker=cpus)
    n_training = round((1.0 - hold_out) * survey.n_rows)
    n_stored = len(mixed_table.stored_widths(learned.used)) + 1
    n_together = min(n_training, rows_together(n_columns))
    most_rows = {"held_out": survey.n_rows - n_training, "encoded": n_training, "group": n_training}
    most_rows |= {"profile": len(sample), "bins": len(sample), "buffer": n_together}
    sizes |= bound.rows(most_rows, _row_bytes(raw_bytes, n_columns, n_stored))
    sizes["group"] = min(sizes["group"], (bound.share("open") // (2 * n_stored) - STREAM_BYTES) // _OPEN_CELL_BYTES)
    n_together = min(n_together, sizes["buffer"])
    hashes = FingerprintOfAll(learned.used, sample)
    sample = sample[:: -(-len(sample) // sizes["profile"])]
    bound.expected["kept"] = 2 * raw_bytes * len(sample)
    if learner == "committee":
        room = memory if engine == "ray" and memory is not None else bound.share("trees")
        cells = TableCells(sample[:: -(-len(sample) // sizes["bins"])])
        own = Labels.from_totals(np.array(classes), counts, counts, positive, price)
        threads = cpus if engine == "ray" else joblib.cpu_count()
        blocks = (encode_table([column], cells).X for column in learned.used)
        plan = plan_trees(blocks, own, n_training, room, seed=seed, threads=threads)
        del cells, blocks  # otherwise they are kept while the rows are read
        bound.expected["trees"] = plan.n_bytes
        settings["pos_label"] = own.positive
    if engine == "stream":
        group_bytes = n_stored * (STREAM_BYTES + _OPEN_CELL_BYTES * min(n_training, sizes["group"]))
        most_bytes = 2 * OPEN_BYTES if bound.stated is None else min(OPEN_BYTES, bound.share("open"))
        n_open = min(8, n_training // sizes["group"] + 1, max(2, most_bytes // group_bytes))
        bound.expected |= {"open": n_open * group_bytes, "buffer": 2e7 + 18 * (n_columns + 1) * n_together}
        settings = {"buffer_rows": None if memory is None else max(1, n_together)} | settings
    stacking_share = hold_out / 2 if learner == "committee" else 0.0
    held_out = HeldOutRows(hold_out, stacking_share, target, clusters, seed, sizes["held_out"])
    bound.release()
    with (
        lock_storage(storage),
        cluster.connected(workers * cpus) if engine == "ray" else nullcontext(),
        _rows(table, learned, survey, labels, storage, verbose, hashes, held_out, bound, sizes) as source,
    ):
        bound.release()
        if engine == "stream":
            notes.append(f"the fit uses {bound}, libraries included")
        rows: StackingRows | None = None
        if learner == "committee":
            stacking = held_out.stacking.frame if held_out.stacking.n_seen else sample.assign(**{target: None})[:0]
            y = np.array([labels[cell] for cell in stacking[target]])
            fewest, rarest = min((int((y == label).sum()), str(label)) for label in classes)
            if fewest < _FEWEST_TO_STACK:
                few = f"{plural(fewest, 'held-out row')} of {rarest}, and a committee needs {_FEWEST_TO_STACK}"
                notes.append(f"the model is only a network: {few}; hold out a larger share of the rows")
                held_out.evidence.merge(held_out.stacking)
                held_out.stacking = FrameSample(1, 0)
            else:
                n_rows = survey.n_rows - held_out.n_rows
                used = f"{round(plan.share * n_rows):,} of {n_rows:,} training rows x {len(plan.limits)} columns"
                notes.append(f"trees use {used} in {plan.n_bytes / 1e6:,.0f} MB of memory")
                stacking_blocks = partial(mixed_table.encoded_blocks, learned.used, stacking)
                judged = np.concatenate([plan.codes(X) for _, X in stacking_blocks()]), plan.labels.target(y)
                if engine == "ray":
                    how = {name: settings[name] for name in _WORKER_SETTINGS if name in settings}
                    grown = cluster.grow_trees_on_ray(plan, source, judged, workers=workers, storage=storage, **how)
                else:
                    grown = _grown_trees(plan, source, judged, storage, verbose)
                again = "trees continue from a checkpoint: later ones differ from those of a fit without interruption"
                notes += [again] * (len(grown.models) > 1)
                of_clusters = None if clusters is None else as_text(stacking[clusters])
                by_cell = [(labels[cell], n) for cell, n in held_out.n_training.items()]
                trained = [float(sum(n for label, n in by_cell if label == one)) for one in classes]
                rows = StackingRows(stacking_blocks, y, own, np.array(trained), grown.ensemble(plan), of_clusters, seed)
                bound.release()
        network, needs_network = None, rows is None or not parameters.keys() <= {*_WORKER_SETTINGS}
        if rows is not None and not needs_network:
            with closing(source.blocks(n_together, seed)) as some:  # otherwise its row groups would stay open
                needs_network = rows.has_use_for_network(some, n_together // 2, epochs)
            bound.release()
        if needs_network:
            checkpoint = None if storage is None else Path(storage) / "stream.checkpoint"
            where = {"checkpoint": checkpoint} if engine == "stream" else {"workers": workers, "storage": storage}
            fit = crcen.fit_stream if engine == "stream" else crcen.fit_ray  # which load torch
            network = fit(source, target, price, **where, **settings)
            network.pos_label = positive
        else:
            notes.append("the model has no network: a trial network on a sample got no weight beside the trees")
        estimator: Estimator = network
        if rows is not None:
            kinds = ("trees",) if network is None else ("networks", "trees")
            made = CommitteeClassifier(price, members=kinds, pos_label=positive, random_state=random_state)
            estimator = stack_members(made, rows, grown, network)
        bound.release()
    model = TableClassifier(estimator=clone(estimator), fingerprint=fingerprint, random_state=random_state, **named)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_  # it sees encoded columns, which come as an array
    model.feature_names_in_ = np.array([name for name in table.columns if name != target], dtype=object)
    model.n_features_in_ = len(model.feature_names_in_)
    model.columns_ = learned.used
    model.dropped_ = [*(DroppedColumn(name, reason) for name, reason in dropped.items()), *learned.dropped]
    model._take(estimator, target)
    bound.release()
    encoded = model.encode(sample)
    model.background_ = typical_table(model.columns_, encoded.X)
    scores = training_scores(estimator, encoded.X[:: -(-len(encoded.X) // _SCORED_ROWS)])
    cells = TableCells(sample)
    model.profile_ = profile_of(model.columns_, cells, encoded, scores)
    numbers = np.array([classes.index(labels[cell]) for cell in sample[target]])
    leaks = find_signs(model.columns_, cells, numbers, classes, model.dropped_).leaks
    if leaks:
        model.leaks_ = [" and ".join(one.columns) for one in leaks]
        notes += Signs(leaks).notes
    if fingerprint:
        model.fingerprint_ = hashes.fingerprint()
    inputs.remember(model, table, clusters)
    bound.release()
    evidence = _evidence(model, held_out, labels, target, notes)
    return FilesFit(
        model=model,
        data=masked(str(data)) if isinstance(data, str | Path) else table.name,
        target=target,
        engine=f"{plural(workers, 'worker')} of Ray" if engine == "ray" else "one process",
        network=network,
        n_held_out=held_out.n_rows,
        seconds=time.perf_counter() - start,
        evidence=evidence,
        path=None if out is None else save(model, out),
        notes=(*notes, *model.notes_, *learned.notes),
    )


def _evidence(
    model: TableClassifier, held_out: HeldOutRows, labels: Mapping[object, Label], target: str, notes: list[str]
) -> TableEvaluation | None:
    """The evaluation on held-out rows that were used for nothing else; None if a class is missing there."""
    if not held_out.evidence.n_seen:
        return None
    frame = held_out.evidence.frame.reset_index(drop=True)
    y = np.array([labels[cell] for cell in frame[target]])
    missing = [label for label in model.classes_.tolist() if not (y == label).any()]
    if missing:
        notes.append(f"no held-out row of {listed(missing)}: hold out a larger share")
        return None
    frame, clusters = frame.assign(**{target: y}), held_out.clusters
    if clusters is not None:
        frame[clusters] = as_text(frame[clusters]).fillna("")  # rows without a cluster were held out together
    found = evaluate_table(model, frame, target=target, clusters=clusters, n_resamples=0)
    own = {name: getattr(model, name) for name in ("classes_", "weighting_")}
    model.held_out_sums_ = held_out_sums(SimpleNamespace(**own, oof_proba_=found.expense.rows.p), y, None)
    return replace(found, data="held-out rows that were used for nothing else")


def _grown_trees(plan: TreePlan, source: ArrowSource, held_out: Any, storage: Storage, verbose: int) -> GrownTrees:
    """Trees on the training rows, stopped by held-out rows; with a storage folder they continue from its checkpoint."""
    start, save, folder = GrownTrees(plan.fingerprint(source.fingerprint)), None, _folder(storage)
    if folder is not None:
        path = folder / "trees.checkpoint"
        start, save = GrownTrees.read(path, start.fingerprint), partial(GrownTrees.write, path=path)
    with progress_bar(f"growing trees ({plan.n_bytes / 1e6:,.0f} MB)", visible=bool(verbose)) as show:
        rows = BinnedRows(plan, source.blocks(_FINGERPRINT_ROWS), folder)
        return grow_trees(plan, rows, held_out, start, save, show=show)


def _columns_of_type(table: Table, is_type: Callable[[pa.DataType], bool]) -> list[str]:
    """Columns whose type in the source is such, as far as the source declares types."""
    return [] if table.schema is None else [one.name for one in table.schema if is_type(one.type)]


def _folder(storage: Storage) -> Path | None:
    return None if storage is None or "://" in str(storage) else Path(storage)


def _row_bytes(raw_bytes: float, n_columns: int, n_stored: int) -> dict[str, float]:
    """Bytes of a row of each part of the work after the survey, from those of a raw row and the encoded columns."""
    parts = {"held_out": 4 * raw_bytes, "encoded": 5 * raw_bytes + 24 * n_columns, "buffer": 28 * (n_columns + 1)}
    parts |= {"profile": 24 * n_columns, "bins": 28 * n_columns}
    return parts | {"group": 24 * n_stored, "open": (STREAM_BYTES + 8192) * n_stored}


@contextmanager
def _rows(
    table: Table,
    learned: LearnedColumns,
    survey: TableSurvey,
    labels: Mapping[object, Label],
    storage: Storage,
    verbose: int,
    hashes: FingerprintOfAll,
    held_out: HeldOutRows,
    bound: MemoryBound,
    sizes: Mapping[str, int],
) -> Iterator[ArrowSource]:
    """Training rows: the files themselves where all is numbers, or the encoded rows in a scratch folder."""
    names, open_bytes = [column.name for column in learned.used], bound.share("open") if bound.stated else None
    is_plain = (
        table.kind == "parquet"
        and all(kind_of(table.schema.field(name).type) == "number" for name in names)
        and all(isinstance(one, NumberColumn | BooleanColumn) and not one.has_missing for one in learned.used)
        and all(cell == label for cell, label in labels.items())
        and not (survey.n_unlabelled or table.options.to_remember or held_out.clusters)
    )
    if is_plain:
        source = ArrowSource(dataset_of(table.parts), survey.target, features=names, open_bytes=open_bytes)
        bound.rows({}, {"open": source.open_bytes / 4})
        bound.expected["open"] = source.open_bytes
        if held_out.share:
            for number, _, frame in mixed_table.frames_of(table, [*names, survey.target], n_rows=sizes["encoded"]):
                held_out.split(frame, frame[names].to_numpy(dtype=np.float64), number, table.parts[number].name)
            source = source.without_held_out(held_out.share, held_out.seed)
        for chunk in chain.from_iterable(source.blocks(_FINGERPRINT_ROWS)):
            hashes.add(TableCells(None), chunk.X)
        yield source
        return
    needed = "storage must be a folder for a table that is not all numbers, since its encoded rows are kept there"
    require(storage is None or _folder(storage) is not None, f"{needed}: got {storage!r}.", "storage")

    def use(cells: TableCells, parts: list[LabelArray], number: int) -> NDArray[np.bool_]:
        kept = held_out.split(cells.frame, np.column_stack(parts), number, table.parts[number].name)
        hashes.add(cells, parts, kept)
        return kept

    also = [] if held_out.clusters is None else [held_out.clusters]
    with scratch_folder(_folder(storage)) as folder:
        with progress_bar(f"encoding the rows ({bound})", visible=bool(verbose)) as show:
            how = {"frame_rows": sizes["encoded"], "group_rows": sizes["group"]}
            unreadable = mixed_table.write_encoded(
                table, learned.used, survey.target, labels, folder, use, bound.releasing(show), also, **how
            )
        for name, number in unreadable.items():
            learned.notes.append(f"cells of {name} that do not have its type are treated as missing: {number:,}")
        yield EncodedRows(folder, learned.used, open_bytes)


@contextmanager
def scratch_folder(storage: Path | None) -> Iterator[Path]:
    """A folder for as long as it is in use, under the storage folder if there is one, with a name of no data folder."""
    folder = Path(tempfile.mkdtemp(prefix="crcen-rows-")) if storage is None else storage / ".crcen-rows"
    shutil.rmtree(folder, ignore_errors=True)  # of a killed fit
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_ahead(table: Table, most_bytes: int) -> int:
    """Let the parts of a text table read at most these bytes ahead; return how many they do."""
    texts = [part for part in table.parts if isinstance(part, TextPart)]
    for part in texts:
        part.block_bytes = min(BLOCK_BYTES, max(_SMALLEST_BLOCK, most_bytes // BLOCKS_AHEAD))
    return BLOCKS_AHEAD * max((part.block_bytes for part in texts), default=0)
