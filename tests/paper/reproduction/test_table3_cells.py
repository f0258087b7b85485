"""Table 3's numbers from rows made by hand: cells, bold marks, ranks, failures, and the paper's formulas."""

import csv
import io
import math

import numpy as np
import pytest

from crcen.paper.reproduction.table3 import _scores, cells, table3, table3_ranks

SETTINGS = {"splits": 3, "scoring": "g_mean", "selection": "per_split"}


def row(method, split, f1, g_mean=0.5, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "f1": f1, "g_mean": g_mean}


def failed(method, split, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "error": "ValueError: worse than random"}


def test_cells_are_means_and_deviations_over_splits():
    rows = [row("mlp", 0, 0.2, 0.5), row("mlp", 1, 0.4, 0.5), row("mlp", 2, 0.9, 0.5), row("crcen", 0, 0.3, 0.7)]
    found = cells(rows)
    mean, sd, n = found["mlp", "abalone", "f1"]
    assert (mean, n) == (pytest.approx(0.5), 3)
    assert sd == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 2))  # ddof = 1
    assert found["mlp", "abalone", "g_mean"] == (0.5, 0.0, 3)
    assert found["crcen", "abalone", "f1"][0] == 0.3
    assert math.isnan(found["crcen", "abalone", "f1"][1])


def test_failures_have_no_cell_and_leave_other_splits_alone():
    found = cells([failed("rusboost", 0), row("mlp", 0, 0.2), failed("mlp", 1), row("mlp", 2, 0.4)])
    assert {key[0] for key in found} == {"mlp"}
    assert found["mlp", "abalone", "f1"][0] == pytest.approx(0.3)
    assert found["mlp", "abalone", "f1"][2] == 2


@pytest.fixture
def by_label():
    rows = [
        *(row("mlp", s, 0.1 * s, 0.3) for s in range(3)),
        *(row("crcen", s, 0.4, 0.8) for s in range(3)),
        *(row("smote", s, 0.4, 0.7) for s in range(3)),
        *(failed("rusboost", s) for s in range(3)),
        *(row("mlp_threshold", s, 0.39, 0.81) for s in range(3)),
    ]
    table = table3(rows, SETTINGS)
    return table, {line["method"]: line for line in table.rows}


def test_cells_hold_ours_the_papers_and_the_difference(by_label):
    _, lines = by_label
    assert lines["MLP"]["abalone F1"] == "0.100 ± 0.100 (paper 0.000, +0.100)"
    assert lines["MLP, threshold"]["abalone F1"] == "0.390 ± 0.000"  # not in the paper


def test_the_best_are_bold_ties_included_for_both(by_label):
    _, lines = by_label
    assert lines["CRCEN"]["abalone F1"] == "**0.400** ± 0.000 (paper **0.400**, +0.000)"
    assert lines["SMOTE"]["abalone F1"] == "**0.400** ± 0.000 (paper **0.400**, +0.000)"
    assert lines["CRCEN"]["abalone Gm"] == "0.800 ± 0.000 (paper **0.808**, -0.008)"
    assert lines["MLP, threshold"]["abalone Gm"] == "**0.810** ± 0.000"


def test_a_failure_is_shown_and_explained(by_label):
    table, lines = by_label
    assert lines["RUSB"]["abalone F1"] == "failed (paper 0.385)"
    assert table.note.endswith("Failed: rusboost on abalone: ValueError: worse than random.")
    assert table.note.count("worse than random") == 1


def test_the_selection_is_printed_with_the_table(by_label):
    table, _ = by_label
    assert "3 stratified splits" in table.note
    assert "selected by g_mean (per_split)" in table.note


def test_written_forms_agree(by_label):
    table, lines = by_label
    from_csv = list(csv.DictReader(io.StringIO(table.csv())))
    assert "**" not in table.csv()
    assert [line["method"] for line in from_csv] == list(lines)
    assert from_csv[1]["abalone F1"] == "0.400 ± 0.000 (paper 0.400, +0.000)"
    assert "| CRCEN | **0.400** ± 0.000 (paper **0.400**, +0.000) |" in table.markdown()
    assert "<td><b>0.400</b> ± 0.000 (paper <b>0.400</b>, +0.000)</td>" in table.html()


def test_ranks_by_hand():
    rows = [
        row("crcen", 0, 0.4, 0.8),
        row("smote", 0, 0.4, 0.7),
        row("mlp", 0, 0.1, 0.3),
        failed("rusboost", 0),
        row("mlp_threshold", 0, 0.39, 0.9),
    ]
    lines = {line["method"]: line for line in table3_ranks(rows).rows}
    # F1: crcen and smote share 1 and 2, threshold 3, mlp 4, the failure 5.
    # G-mean: threshold, crcen, smote, mlp, the failure.
    ours = {label: line["ours"] for label, line in lines.items()}
    assert ours == {"CRCEN": "1.75", "SMOTE": "2.25", "MLP": "4.00", "RUSB": "5.00", "MLP, threshold": "2.00"}
    among = {label: line["ours, the paper's methods only"] for label, line in lines.items()}
    assert among["CRCEN"] == "1.25"  # (1.5 + 1) / 2
    assert among["SMOTE"] == "1.75"
    assert among["MLP, threshold"] == ""
    # Published on Abalone, F1 .400 .400 0 .385 and G-mean .808 .808 0 .792.
    paper = {label: line["paper"] for label, line in lines.items()}
    assert paper == {"CRCEN": "1.50", "SMOTE": "1.50", "MLP": "4.00", "RUSB": "3.00", "MLP, threshold": ""}


def test_a_method_that_failed_on_one_set_ranks_last_there():
    rows = [row("crcen", 0, 0.4, 0.8), row("mlp", 0, 0.1, 0.3), row("rusboost", 0, 0.5, 0.9)]
    rows += [row("crcen", 0, 0.4, 0.8, "scene"), row("mlp", 0, 0.5, 0.3, "scene"), failed("rusboost", 0, "scene")]
    lines = {line["method"]: line["ours"] for line in table3_ranks(rows).rows}
    assert lines == {"CRCEN": "1.75", "MLP": "2.25", "RUSB": "2.00"}  # crcen 2 2 2 1, mlp 3 3 1 2, rusboost 1 1 3 3


def test_a_method_that_failed_everywhere_ranks_last():
    rows = [row("crcen", 0, 0.4, 0.8), row("mlp", 0, 0.1, 0.3), failed("rusboost", 0)]
    lines = {line["method"]: line["ours"] for line in table3_ranks(rows).rows}
    assert lines == {"CRCEN": "1.00", "MLP": "2.00", "RUSB": "3.00"}


class Fixed:
    """Decides and rates as it is told."""

    def __init__(self, predicted, p):
        self.predicted, self.p = predicted, p

    def predict(self, X):
        return self.predicted

    def predict_proba(self, X):
        return np.column_stack([1 - self.p, self.p])


def test_scores_are_the_papers_formulas():
    tp, fp, fn, tn = 6, 10, 4, 80
    y = np.repeat([1, 0, 1, 0], [tp, fp, fn, tn])
    predicted = np.repeat([1, 1, 0, 0], [tp, fp, fn, tn])
    scores = _scores(Fixed(predicted, np.where(predicted == 1, 0.8, 0.1)), np.zeros((len(y), 1)), y)
    assert (scores["tp"], scores["fp"], scores["fn"], scores["tn"]) == (tp, fp, fn, tn)
    precision, recall, specificity = tp / (tp + fp), tp / (tp + fn), tn / (fp + tn)
    assert scores["precision"] == pytest.approx(precision)
    assert scores["recall"] == pytest.approx(recall)
    assert scores["specificity"] == pytest.approx(specificity)
    assert scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert scores["g_mean"] == pytest.approx(math.sqrt(recall * specificity))
    loss = -(tp * math.log(0.8) + fn * math.log(0.1) + fp * math.log(0.2) + tn * math.log(0.9)) / len(y)
    assert scores["log_loss"] == pytest.approx(loss)
    # Two steps: recall .6 at precision 6/16, then the other .4 at 10/100.
    assert scores["average_precision"] == pytest.approx(0.6 * 6 / 16 + 0.4 * 10 / 100)


def test_no_alarm_at_all_scores_zero_as_in_the_paper():
    y = np.array([1, 0, 0, 0])
    scores = _scores(Fixed(np.zeros(4, int), np.full(4, 0.1)), np.zeros((4, 1)), y)
    assert (scores["f1"], scores["g_mean"], scores["precision"]) == (0, 0, 0)


def test_the_ranks_say_what_a_costly_method_was_allowed():
    rows = [{"dataset": "a", "split": 0, "method": method, "f1": 0.5, "g_mean": 0.5} for method in ("mlp", "lmle")]
    assert "At most: LMLE 10 clusters of a class" in table3_ranks(rows).note
    assert "At most" not in table3_ranks(rows[:1]).note
