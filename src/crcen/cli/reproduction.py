"""`crcen datasets`, `methods` and `reproduce`: data sets, compared methods, and the paper's tables and figure."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from crcen.cli.options import Given, Listing, add_command, argument, choice, option

# What concerns the paper is listed after what an analyst needs.
_add = partial(add_command, panel="Research: the paper")
_FOLDER: Given = {"exists": True, "file_okay": False}  # a mistyped path is a usage error


def _datasets(data_home: Path | None) -> Listing:
    from crcen.datasets.benchmark import list_datasets

    rows = list_datasets(data_home)
    lines = [f"{'name':16s} {'rows':>7s} {'columns':>7s} {'positive':>8s} {'ratio':>6s}  {'in paper':9s} from"]
    lines += [
        f"{row.name:16s} {row.n_samples:7d} {row.n_features:7d} {row.n_pos:8d} {row.imbalance_ratio:6.1f}  "
        f"{row.paper_name or '':9s} {row.available}"
        for row in rows
    ]
    return Listing([asdict(row) | {"imbalance_ratio": row.imbalance_ratio} for row in rows], lines)


def _methods() -> Listing:
    from crcen.paper.methods import METHODS

    fields = ("summary", "changes", "probabilities", "budget", "source")
    values = [{"name": name} | {key: getattr(method, key) for key in fields} for name, method in METHODS.items()]
    natural = {"natural": "natural", "factor": "by a known factor", "calibrate": "by calibration out of fold"}
    lines = [
        f"{name:19s} {method.summary}; changes {', '.join(method.changes.split()) or 'nothing'}; probabilities "
        f"{natural[method.probabilities]}{f'; at most {method.budget}' if method.budget else ''} [{method.source}]"
        for name, method in METHODS.items()
    ]
    return Listing(values, lines)


def _reproduce(**given: Any) -> Listing:
    from crcen.paper.reproduce import reproduce

    run = reproduce(**given)
    values = {"folder": str(run.folder), "texts": list(run.texts)}
    return Listing(values, [*run.texts, f"Written to {run.folder}"])


_add(
    "datasets",
    "List the benchmark sets and where each would be loaded from.",
    _datasets,
    {"data_home": option(Path, "Folder in imbalanced-learn's cache layout.", **_FOLDER)},
    examples=("datasets --data-home data",),
)
_add(
    "methods",
    "List the compared methods: what each changes, how natural probabilities follow, and its source.",
    _methods,
    {},
    examples=("methods",),
)
_add(
    "reproduce",
    "Rebuild the paper's tables and figure, published numbers next to ours; interrupted runs resume.",
    _reproduce,
    {
        "artefact": argument(choice("table1", "table2", "table3", "figure1", "all"), "What to rebuild.", default="all"),
        "data_home": option(Path, "Folder in imbalanced-learn's cache layout; default CRCEN_DATA_HOME.", **_FOLDER),
        "quick": option(bool, "A minute-long version on the bundled sets."),
        "out": option(Path, "Run folder; default runs/ and a hash of the settings. Same folder: resume."),
        "selection": option(choice("first_split", "per_split"), "Choose hyperparameters once, or for each split."),
        "scoring": option(choice("f1", "g_mean", "weighted_log_loss", "own_metric"), "Score by which they are chosen."),
        "config": option(Path, "TOML file with settings that replace the packaged ones.", dir_okay=False),
        "engine": option(choice("local", "ray"), "Train searches here, or on a Ray cluster.", default="local"),
        "methods": option(str, "Methods of table3, separated by commas, or all; see `crcen methods`."),
        "reading": option(
            choice("today", "2019", "scikit-learn"), "Networks and libraries of table3.", default="today"
        ),
    },
    examples=("reproduce table1", "reproduce all --quick --out runs/quick"),
    interrupted="run the same command again to resume",
)
