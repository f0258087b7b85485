"""demo: fit, evaluate and report on a bundled data set."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from crcen import Budget, CRCENClassifierCV, load_dataset
from crcen._support.lazy import model_selection
from crcen.commands.evaluate import TableEvaluation, evaluate_table
from crcen.commands.fit import TableFit, fit_table
from crcen.commands.inputs import check_outputs
from crcen.commands.report import TableReport, report_table
from crcen.commands.results import Result

_BUDGET = 10


@dataclass(frozen=True, eq=False, repr=False)
class Demo(Result):
    """The fit, its evaluation on test rows, and the report about the same rows; prints itself."""

    keys = "fit evaluation report"
    fit: TableFit
    evaluation: TableEvaluation
    report: TableReport

    def __str__(self) -> str:
        fit = f"crcen fit train.csv --target seven_rings --budget {_BUDGET} --out model.crcen"
        return (
            "Abalone: find the shells of seven rings among 4,177, where a miss is worth 10 false alarms.\n\n"
            f"1. Fit, as `{fit}` does\n\n{self.fit}\n\n"
            f"2. Evaluate on test rows, as `crcen evaluate model.crcen test.csv` does\n\n{self.evaluation}\n\n"
            f"3. Report, as `crcen report model.crcen test.csv --out report.html` does\n\n{self.report}"
        )


def demo(out: str | Path = "report.html", *, estimator: CRCENClassifierCV | None = None, verbose: int = 0) -> Demo:
    """Fit, evaluate and report on the bundled abalone set: what `crcen demo` does.

    Parameters
    ----------
    out : str or Path, default="report.html"
        The report to write; nothing else is written.
    estimator, verbose
        As in `fit_table`.
    """
    check_outputs({"out": out}, pages=("out",))
    data = load_dataset("abalone")
    frame = pd.DataFrame(data.X, columns=data.feature_names).assign(seven_rings=data.y)
    train, test = model_selection.train_test_split(frame, test_size=0.25, stratify=data.y, random_state=0)
    fit = fit_table(train, target="seven_rings", weighting=Budget(_BUDGET), estimator=estimator, verbose=verbose)
    evaluation = evaluate_table(fit.model, test, verbose=verbose)
    report = report_table(fit.model, test, out=out, title="Demonstration on abalone", verbose=verbose)
    return Demo(fit, evaluation, report)
