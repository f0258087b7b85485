"""What belongs to a report as a record: rows, model, versions, seed."""

import platform
from collections.abc import Mapping
from datetime import UTC, datetime

from crcen._support.extras import installed_versions
from crcen._version import __version__
from crcen.report.evidence import Evidence, kept_by

__all__ = ["facts_of"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch", "pandas", "skrub")


def facts_of(
    evidence: Evidence, names: Mapping[str, str | None], random_state: int
) -> dict[str, list[tuple[str, str]]]:
    """List data, model and environment as pairs of text; nothing here names a place on the machine.

    Parameters
    ----------
    evidence : Evidence
        The model and its rows.
    names : dict
        File names of ``"data"`` and ``"model"``, or None.
    random_state : int
        Seed of the report.

    Returns
    -------
    dict of list of (name, value)
        By heading.
    """
    model, weighting = evidence.model, evidence.weighting
    data = [
        ("file", names["data"] or "not named"),
        ("rows", f"{evidence.n_rows:,}"),
        ("columns", f"{len(evidence.columns):,}"),
        ("positive label", str(evidence.pos_label)),
        ("negative label", str(evidence.neg_label)),
        ("judged", "out of fold, by models that did not see the row" if evidence.is_out_of_fold else "by this model"),
        ("sample weights", "yes" if evidence.is_weighted else "no"),
        ("seed of this report", str(random_state)),
    ]
    about = [("file", names["model"] or "not named"), ("kind", type(model).__name__)]
    if evidence.has_price:
        about += [
            ("price", f"{weighting.cost_ratio:.6g} false alarms per extra catch"),
            ("weight λ", f"{weighting.lam:.6g}"),
            ("multiplier α", f"{weighting.alpha:.6g}"),
            ("training rows", f"{weighting.n_pos:,.6g} positive, {weighting.n_neg:,.6g} negative"),
        ]
    chosen = kept_by(model, "best_params_")
    if isinstance(chosen, dict):
        about += [(str(name), str(value)) for name, value in chosen.items() if name != "weighting"]
    for line in kept_by(model, "leaderboard_") or ():
        weight = "" if line.weight != line.weight else f"weight {line.weight:.3g}, "
        scores = f"log loss {line.log_loss:.4g}, average precision {line.average_precision:.4g}"
        about.append((line.name, f"{weight}{scores}, ROC AUC {line.roc_auc:.4g} out of fold"))
    for label, attribute in (("epochs", "best_epochs_"), ("folds", "n_splits_")):
        value = kept_by(model, attribute)
        if value is not None:
            about.append((label, str(value)))
    environment = [("crcen", __version__), ("Python", platform.python_version())]
    environment += installed_versions(_PACKAGES).items()
    environment.append(("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")))
    return {"Data": data, "Model": about, "Environment": environment}
