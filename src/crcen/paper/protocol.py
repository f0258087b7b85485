"""How experiments are run: run folders, tables, stratified splits, and a search of each method's settings.

Methods whose networks the engine trains are searched as stacks; the others are fitted one by one on the same folds,
with as many settings and the same score.
"""

import csv
import hashlib
import html
import json
import os
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import logit
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

import crcen
from crcen._support.extras import installed_version
from crcen._support.files import write_atomic
from crcen._support.progress import steps
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import DataUnavailable, TrainingFailed
from crcen.paper import Array, Classifier, Index, Rows, Settings, Values
from crcen.paper.methods import NetworkTraining, Tuning, make_method
from crcen.theory.price import Price
from crcen.training.engines import find_engine
from crcen.training.jobs import Status, TrainingJob

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "imbalanced-learn", "matplotlib")


def settings_hash(settings: Settings) -> str:
    """Eight letters that are equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def _environment() -> Values:
    import torch

    system = f"{platform.system()} {platform.machine()}"
    machine = {"python": platform.python_version(), "platform": system, "processors": os.cpu_count()}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    packages = {package: installed_version(package) or "not installed" for package in _PACKAGES}
    about = {"device": device, "packages": packages, "command": ["crcen", *sys.argv[1:]]}
    return {"crcen": crcen.__version__, **machine, **about}


@dataclass(frozen=True)
class Table:
    """Rows of text with one set of columns; ``**bold**`` is kept in Markdown and HTML and dropped in CSV."""

    title: str
    rows: Sequence[Mapping[str, str]]
    note: str = ""

    def _frame(self) -> pd.DataFrame:
        return pd.DataFrame(list(self.rows), dtype=object).fillna("")

    def markdown(self) -> str:
        """Title, note and a pipe table."""
        frame = self._frame()
        head, *lines = [f"| {' | '.join(cells)} |" for cells in [frame.columns, *frame.to_numpy()]]
        note = [self.note, ""] if self.note else []
        return "\n".join([f"## {self.title}", "", *note, head, "|" + "---|" * frame.shape[1], *lines]) + "\n"

    def csv(self) -> str:
        """Comma-separated values without mark-up."""
        return str(self._frame().replace(r"\*\*", "", regex=True).to_csv(index=False, lineterminator="\n"))

    def html(self) -> str:
        """A section with heading, note and table."""
        with pd.option_context("display.max_colwidth", None):
            table = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", self._frame().to_html(index=False, border=0))
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<section><h2>{html.escape(self.title)}</h2>{note}<div class='wide'>{table}</div></section>"


@cache
def _published() -> dict[tuple[str, str, str, str], tuple[float, float | None]]:
    text = resources.files("crcen.paper").joinpath("published.csv").read_text(encoding="utf-8")
    return {
        (artefact, row, column, metric): (float(value), float(sd) if sd else None)
        for artefact, row, column, metric, value, sd in list(csv.reader(text.splitlines()))[1:]
    }


def published(artefact: str, row: str, column: str, metric: str) -> tuple[float, float | None] | None:
    """Value and standard deviation of a published cell, or ``None`` if the paper has none."""
    return _published().get((artefact, row, column, metric))


class RunFolder:
    """A folder with one run: settings, rows as they finish, tables, and DONE; ``key`` names what identifies a row.

    A run can be interrupted at any point, including kill -9, and resumed: rows are appended line by line and flushed to
    disk, a truncated line is dropped, and finished work is found by its key. A folder with other settings is rejected.
    One process at a time: whoever opens a folder holds the lock of it, or of the folder around it.
    """

    def __init__(self, folder: Path, settings: Settings, key: tuple[str, ...]) -> None:
        self.folder, self.key = folder, key
        self._by_key: dict[tuple[object, ...], Values] = {}  # the first row stays, since tables were made from it
        self._check_settings(json.loads(json.dumps(settings)))
        path, whole = folder / "rows.jsonl", 0
        if path.exists():
            with suppress(ValueError):  # a kill may have cut off the last line
                for line in path.read_bytes().splitlines(keepends=True):
                    row = json.loads(line[: line.index(b"\n")])
                    self._by_key.setdefault(self._key_of(row), row)
                    whole += len(line)
            os.truncate(path, whole)

    @property
    def rows(self) -> list[Values]:
        """All rows, in order."""
        return list(self._by_key.values())

    def _check_settings(self, wanted: Values) -> None:
        path = self.folder / "settings.json"
        if path.exists():
            found = json.loads(path.read_text())
            if found != wanted:
                changed = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
                message = f"{self.folder} holds a run with other settings ({', '.join(changed)})"
                raise crcen.InvalidParameter(f"{message}; give another --out, or delete that folder.")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # Settings last: a folder that has them is complete.
        write_atomic(self.folder / "environment.json", json.dumps(_environment(), indent=1) + "\n")
        write_atomic(path, json.dumps(wanted, indent=1, sort_keys=True) + "\n")

    def _key_of(self, row: Settings) -> tuple[object, ...]:
        return tuple(row.get(name) for name in self.key)

    def has(self, **fields: object) -> bool:
        """Whether there is a row with these fields."""
        return any(fields.items() <= row.items() for row in self.rows)

    def add(self, rows: Iterable[Settings]) -> None:
        """Append finished rows, on disk before this returns; rows with a known key are ignored."""
        lines: dict[tuple[object, ...], str] = {}
        for row in rows:
            if self._key_of(row) not in self._by_key:
                lines.setdefault(self._key_of(row), json.dumps(dict(row)) + "\n")
        if not lines:
            return
        path = self.folder / "rows.jsonl"
        before = path.stat().st_size if path.exists() else 0
        try:
            with open(path, "ab") as file:
                file.write("".join(lines.values()).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(path, before)  # a nearly full disk takes a part
            raise DataUnavailable(f"{path} was not written: {error.strerror}; earlier rows are kept.") from error
        self._by_key |= {key: json.loads(line) for key, line in lines.items()}

    def write(self, name: str, content: str | bytes) -> None:
        """Write a derived file atomically."""
        write_atomic(self.folder / name, content)

    def write_tables(self, tables: Mapping[str, Table]) -> None:
        """Write tables as Markdown and CSV, keep them as ``tables``, and mark the run as done."""
        self.tables = list(tables.values())
        for name, table in tables.items():
            self.write(f"{name}.md", table.markdown())
            self.write(f"{name}.csv", table.csv())
        self.write("DONE", "")


# Scoring in which F1 cells use the setting with the best F1 and G-mean cells that with the best G-mean.
OWN_METRIC = "own_metric"
Folds = Sequence[tuple[Index, Index]]
Fitted = tuple[tuple[int, ...], Callable[[str], float]]  # setting, fold and network; score by metric

_LARGEST_LOGIT = 30.0  # of a probability of 0 or 1


class Split(NamedTuple):
    """One division of a set into training and test rows."""

    number: int
    train: Index
    test: Index


def splits(data: Dataset, settings: Settings) -> list[Split]:
    """The repeated stratified splits of a set."""
    how = {"test_size": settings["test_size"], "random_state": settings["seed"]}
    found = StratifiedShuffleSplit(settings["splits"], **how).split(data.X, data.y)
    return [Split(i, np.sort(train), np.sort(test)) for i, (train, test) in enumerate(found)]


def each_split(
    title: str, todo: Sequence[tuple[str, int, str]], settings: Settings, home: Path | None
) -> Iterator[tuple[Dataset, Split, str]]:
    """Data, split and last entry of every (set, split number, …), with progress; a set is loaded once."""
    data: Dataset | None = None
    with steps(title, len(todo)) as advance:
        for name, number, what in todo:
            if data is None or data.name != name:
                data = crcen.load_dataset(name, home)
            yield data, splits(data, settings)[number], what
            advance(f"{name} split {number} {what}".rstrip())


def tuning_of(name: str) -> Tuning | None:
    """What is searched in a method, or None."""
    method = crcen.METHODS[name]
    return Tuning() if method.training is not None else method.tuning


def candidates(tuning: Tuning, y: Index, settings: Settings) -> list[Values]:
    """The settings to compare: the grid of the networks, or as many cost ratios from near 1 to the imbalance ratio."""
    grid = [{"hidden": h, "l2": l2} for h in settings["hidden"] for l2 in settings["l2"]]
    if tuning.what == "network":
        return grid
    ratio = float((y == 0).sum() / (y == 1).sum())
    return [{"cost_ratio": ratio ** ((k + 1) / len(grid))} for k in range(len(grid))]


def params_of(tuning: Tuning, setting: Settings, settings: Settings, seed: int) -> Values:
    """Keyword arguments of a method at a setting."""
    if tuning.what == "cost":
        return {"weighting": crcen.CostRatio(float(setting["cost_ratio"])), "random_state": seed}
    params: Values = {"hidden": (int(setting["hidden"]),), "l2": float(setting["l2"])}
    params |= {"max_epochs": int(settings["epochs"]), "random_state": seed}
    if steps := {name: settings[name] for name in ("batch_size", "learning_rate") if name in settings}:
        params["schedule"] = crcen.Schedule(**steps)
    if not settings.get("standardize", True):
        params["encoding"] = crcen.Inputs(encoding="standard", standardize=False)
    return params


def select(run: RunFolder, data: Dataset, split: Split, name: str, settings: Settings, engine: str = "local") -> Values:
    """The setting chosen by cross-validation on the training rows of a split (or of the first one); kept in the run."""
    name = "crcen" if name == "crcen_ensemble" else name  # an average uses the setting of one network
    first = settings["selection"] == "first_split"
    key = {"dataset": data.name, "split": 0 if first else split.number, "method": name}
    if not run.has(**key):
        source = splits(data, settings)[0] if first else split
        run.add([key | _search(name, data.X[source.train], data.y[source.train], settings, engine)])
    return next(row for row in run.rows if key.items() <= row.items())


def _search(name: str, X: Array, y: Index, settings: Settings, engine: str = "local") -> Values:
    """The best setting, its score and the score of every setting.

    A fold's score is the mean over several networks that differ in their seed: one alone is not reliable on small sets.
    """
    tuning = tuning_of(name)
    if tuning is None:
        raise crcen.InvalidParameter(f"{name} has nothing to search over.")
    folds = list(StratifiedKFold(settings["folds"], shuffle=True, random_state=settings["seed"]).split(X, y))
    metrics = ("f1", "g_mean") if settings["scoring"] == OWN_METRIC else (settings["scoring"],)
    grid = candidates(tuning, y, settings)
    count = min(int(settings["search_networks"]), tuning.networks or int(settings["search_networks"]))
    every = np.full((len(metrics), len(grid), len(folds), count), -np.inf)
    try:
        if crcen.METHODS[name].training is None:
            fitted = _fitted_models(name, tuning, X, y, folds, grid, count, settings)
        else:
            fitted = _fitted_stack(name, X, y, folds, grid, count, settings, engine)
        for (i, fold, network), score in fitted:
            every[:, i, fold, network] = [score(metric) for metric in metrics]
    except ValueError as error:
        return {"error": error_sentence(error)}
    found: list[Values] = []
    for scores in every.mean(axis=3):
        means = scores.mean(axis=1)
        if np.isneginf(means).all():
            lost = f"a network: {Status.DIVERGED.value}" if tuning.what == "network" else "a fit"
            return {"error": f"TrainingFailed: every setting lost {lost}"}
        best = int(np.argmax(means))
        rated = zip(grid, means, scores, strict=True)
        table = [setting | {"score": float(m), "folds": s.tolist()} for setting, m, s in rated]
        found.append(grid[best] | {"score": float(means[best]), "grid": table})
    return found[0] | dict(zip(metrics[1:], found[1:], strict=True))


def error_sentence(error: Exception) -> str:
    """Type and message on one line, for a row."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _score(logits: Array, y: Index, price: Price, scoring: str) -> float:
    """F1 or G-mean of the decision logits > 0, or minus the weighted log loss; higher is better."""
    if scoring != "weighted_log_loss":
        counts = crcen.confusion_counts(y, logits > 0)
        return float(counts.f1 if scoring == "f1" else counts.g_mean)
    weights = price.row_weights(y)
    return -float((weights * (np.logaddexp(0, logits) - y * logits)).sum() / weights.sum())


def _fitted_stack(
    name: str, X: Array, y: Index, folds: Folds, grid: Rows, count: int, settings: Settings, engine: str
) -> Iterator[Fitted]:
    """Networks that are trained together; those that diverged are left out."""
    training = crcen.METHODS[name].training
    assert training is not None
    pools, rows, labels = _training_rows(training, name, X, y, [train for train, _ in folds], settings)
    first = int(settings["seed"])
    common = {name: settings[name] for name in ("batch_size", "learning_rate", "standardize") if name in settings}
    common |= {"loss": training.loss, "max_epochs": int(settings["epochs"]), "shuffle_seed": first}
    lams = [_price(training.weighting, labels[pool]).lam for pool in pools]
    jobs = [
        TrainingJob(
            (1 - lam, lam),
            rows=pool,
            hidden=(int(setting["hidden"]),),
            l2=float(setting["l2"]),
            seed=seed,
            balance=training.loss == "cross_entropy",
            **common,
        )
        for setting in grid
        for pool, lam in zip(pools, lams, strict=True)
        for seed in range(first, first + count)
    ]
    for position, result in enumerate(find_engine(engine)(rows, labels, jobs)):
        place = tuple(map(int, np.unravel_index(position, (len(grid), len(folds), count))))
        if result.network is not None:
            train, held_out = folds[place[1]]
            price = _price(training.price, y[train])
            logits = result.network.logits(X[held_out])
            if training.weighting is None and training.price is not None and training.sampler is None:
                logits = logits + price.logit_shift  # a plain network whose threshold is moved
            yield place, partial(_score, logits, y[held_out], price)


def _price(weighting: object, y: Index) -> Price:
    n_pos = int(y.sum())
    return crcen.resolve(weighting, n_pos, len(y) - n_pos)


def _training_rows(
    training: NetworkTraining, name: str, X: Array, y: Index, folds: Sequence[Index], settings: Settings
) -> tuple[list[Index], Array, Index]:
    """Rows of each fold, and the table that they index; samplers see the rows of a fold alone."""
    if training.sampler is None:
        return list(folds), X, y
    sampled = [make_method(name, random_state=settings["seed"]).resample(X[train], y[train]) for train in folds]
    ends = np.cumsum([len(labels) for _, labels in sampled])
    pools = [np.arange(end - len(labels), end) for end, (_, labels) in zip(ends, sampled, strict=True)]
    rows, labels = (np.concatenate(part) for part in zip(*sampled, strict=True))
    return pools, rows, labels


def _fitted_models(
    name: str, tuning: Tuning, X: Array, y: Index, folds: Folds, grid: Rows, count: int, settings: Settings
) -> Iterator[Fitted]:
    """Models that are fitted one by one; those that cannot be fitted are left out."""
    for fold, i, network in np.ndindex(len(folds), len(grid), count):
        train, held_out = folds[fold]
        params = params_of(tuning, grid[i], settings, settings["seed"] + network)
        with warnings.catch_warnings(), suppress(ValueError, TrainingFailed):  # a price or shape it cannot use
            warnings.simplefilter("ignore")  # the row of the final fit reports limits on rows
            model = make_method(name, **params, **tuning.lighter).fit(X[train], y[train])
            price = _price("balanced", y[train])
            yield (i, fold, network), partial(_model_score, model, tuning, X[held_out], y[held_out], price)


def _model_score(model: Classifier, tuning: Tuning, X: Array, y: Index, price: Price, scoring: str) -> float:
    """Score of a fitted model at the balanced price; scores that are no log-odds are compared at their best scale."""
    if scoring != "weighted_log_loss":
        return _score(np.where(model.predict(X) == 1, 1.0, -1.0), y, price, scoring)
    if tuning.is_natural:
        with np.errstate(divide="ignore"):
            natural = np.clip(logit(model.predict_proba(X)[:, 1]), -_LARGEST_LOGIT, _LARGEST_LOGIT)
        return _score(natural + price.logit_shift, y, price, scoring) if np.isfinite(natural).all() else -np.inf
    score = np.asarray(model.decision_function(X), float)
    if not np.isfinite(score).all():
        return -np.inf
    score /= max(float(np.abs(score).mean()), 1e-300)
    how = {"bounds": (-4, 3), "method": "bounded"}
    return -float(minimize_scalar(lambda power: -_score(score * 10.0**power, y, price, scoring), **how).fun)
