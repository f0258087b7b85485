"""What a notebook shows: results as they print themselves, escaped, pages in a frame; and logs."""

import logging

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands.environment import environment_info
from crcen.theory.rows import ShownInOneLine

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
Y = (RNG.random(400) < 1 / (1 + np.exp(1.5 - 2 * X[:, 0]))).astype(int)
P = np.clip(RNG.random(400), 0.01, 0.99)
FRAME = pd.DataFrame(X, columns=["<b>a</b>", "b", "c"]).assign(y=Y)
QUICK = {"hidden": (), "l2": 1e-2, "encoding": "standard", "n_members": 1, "max_epochs": 5, "cv": 2}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One of every result that people meet."""
    folder = tmp_path_factory.mktemp("results")
    fit = crcen.fit_table(FRAME, target="y", weighting=crcen.Budget(3), estimator=crcen.CRCENClassifierCV(**QUICK))
    monitor = crcen.KeyEquationMonitor(y_reference=Y, q_reference=P)
    FRAME.to_csv(folder / "rows.csv", index=False)
    return {
        "KeyEquation": fit.model.key_equation_,
        "ExpenseCurve": crcen.ExpenseCurve.from_predictions(Y, P, [crcen.Budget(1), crcen.Budget(3), crcen.Budget(9)]),
        "DecisionSummary": crcen.decision_summary(P, crcen.Budget(3), Y),
        "TableFit": fit,
        "TablePredictions": crcen.predict_table(fit.model, FRAME),
        "TableEvaluation": crcen.evaluate_table(fit.model, FRAME, n_resamples=0),
        "TableLook": crcen.inspect_table(FRAME, target="y"),
        "TableMonitoring": crcen.monitor_table(fit.model, FRAME),
        "TableSplit": crcen.split_table(folder / "rows.csv", target="y"),
        "Reasons": fit.model.reasons(FRAME[:20]),
        "KeyEquationMonitor": monitor,
        "ModelInfo": crcen.model_info(crcen.save(fit.model, folder / "model.crcen")),
        "EnvironmentInfo": environment_info(),
        "Report": crcen.write_report(fit.model, FRAME.drop(columns="y"), Y, folder / "report.html"),
        "TableReport": crcen.report_table(fit.model, FRAME, out=folder / "report2.html"),
    }


def test_every_result_shows_itself_escaped_and_in_one_line(results):
    for name, result in results.items():
        shown, html = repr(result), result._repr_html_()
        assert ("\n" in shown, len(shown) < 700) == (False, True), name
        assert ("<b>a</b>" in html, html[0]) == (False, "<"), name


def test_a_report_is_shown_in_a_frame_that_reaches_nothing(results, tmp_path):
    html = results["Report"]._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts" ')
    gone = crcen.write_report(results["TableFit"].model, FRAME.drop(columns="y"), Y, tmp_path / "gone.html")
    gone.path.unlink()
    assert "no longer exists" in gone._repr_html_()


def test_one_line_is_the_first_that_is_printed():
    class Long(ShownInOneLine):
        def __str__(self):
            return "\n  " + "a" * 500 + "\nmore"

    line = repr(Long())
    assert (line[:10], line[-2:], len(line) < 180) == ("<Long: aaa", "…>", True)


def test_functions_log_one_line_and_an_alarm_is_a_warning(results, caplog):
    model = results["TableFit"].model
    with caplog.at_level(logging.INFO, logger="crcen"):
        crcen.predict_table(model, FRAME)
        crcen.monitor_table(model, FRAME.assign(b=FRAME.b * 1000))
    first, second = caplog.records
    assert (first.levelname, second.levelname, first.name[:6]) == ("INFO", "WARNING", "crcen.")
    assert first.getMessage().startswith("predict_table: <TablePredictions")
    assert "\n" not in second.getMessage()
