"""Several classes through the command, as a person in a hurry would: fit, predict, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands.fit import QUICK

COSTS = ";fine;worn out;3;look\nfine;;1;1;0,2\nworn out;5;;1;0,2\n3;40;9;;0,2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.csv with labels of text and a number, numbers with a currency, and costs.csv."""
    home, rng = tmp_path_factory.mktemp("classes"), np.random.default_rng(0)
    kind = np.concatenate([np.arange(3).repeat(4), rng.choice(3, 288, p=[0.7, 0.2, 0.1])])
    amount = [f"€ {10 + value:.2f}" for value in kind + rng.normal(size=300)]
    state = np.array(["fine", "worn out", "3"])[kind]
    frame = pd.DataFrame({"amount": amount, "b": rng.normal(size=300), "state": state})
    frame.to_csv(home / "train.csv", index=False)
    (home / "costs.csv").write_text(COSTS)
    return home


@pytest.fixture(scope="module")
def model_file(folder):
    """A model of these rows at these costs."""
    options = {"costs": folder / "costs.csv", "estimator": crcen.CRCENClassifierCV(**QUICK)}
    crcen.fit_table(folder / "train.csv", target="state", **options, out=folder / "own.crcen")
    return folder / "own.crcen"


def test_fit_then_predict(answer, printed, folder):
    model, train, out = folder / "model.crcen", folder / "train.csv", folder / "out.csv"
    costs = ("--costs", folder / "costs.csv")
    fitted = answer("fit", train, "--target", "state", "--quick", *costs, "--out", model)
    held_out = fitted["out_of_fold"]
    assert fitted["classes"] == ["3", "fine", "worn out"]
    assert held_out["decisions"] == ["3", "fine", "worn out", "look"]
    assert held_out["cost_per_row"]["value"] <= held_out["habit"]["cost_per_row"]
    assert np.sum(held_out["confusion"]) == 300
    found, written = answer("predict", model, train, "--out", out, "--id", "state"), pd.read_csv(out)
    assert list(written) == ["state", "decision", "probability_3", "probability_fine", "probability_worn out"]
    p = written.iloc[:, 2:].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    costs = np.array([[0, 40, 9, 0.2], [1, 0, 1, 0.2], [1, 5, 0, 0.2]])
    names = np.array(["3", "fine", "worn out", "look"])
    assert written["decision"].astype(str).tolist() == names[(p @ costs).argmin(axis=1)].tolist()
    assert found["expected_cost"] == pytest.approx((p @ costs).min(axis=1).sum())
    printed("predict", model, train, "--out", out, "--weighting", "fine=1,worn out=2,3=9")
    chosen = names[(p * [9, 1, 2]).argmax(axis=1)]
    assert pd.read_csv(out)["decision"].astype(str).tolist() == chosen.tolist()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--weighting", "fine=1"), 1, "every value of state needs a weight: 3, worn out have none"),
        (("--weighting", "fien=1"), 1, "values of state, 3, fine, worn out: got 'fien'; did you mean fine?"),
        (("--weighting", "much"), 2, "--weighting must be balanced, none, or"),
        (("--weighting", "none", "--budget", 3), 2, "both say what mistakes are worth"),
        (("--costs", "nothing.csv"), 1, "nothing.csv is not there"),
    ],
)
def test_what_fit_refuses(refusal, folder, options, code, sentence):
    assert sentence in refusal("fit", folder / "train.csv", "--target", "state", "--quick", *options, code=code)


def test_a_target_of_many_numbers(refusal, folder):
    err = refusal("fit", folder / "train.csv", "--target", "b", "--quick")
    assert "must have at most 50 different values: got 300 (" in err
    assert " and 292 more); name the one to find with --positive" in err


def test_a_report_at_other_costs(answer, printed, refusal, folder, model_file):
    """The page decides as `evaluate` does at these costs, and says that they are not the model's own."""
    page, other = folder / "report.html", folder / "other.csv"
    rows = (model_file, folder / "train.csv")
    printed("report", *rows, "--out", page)
    assert "Decisions at the model’s costs" in page.read_text(encoding="utf-8")
    other.write_text(";fine;worn out;3\nfine;0;2;2\nworn out;1;0;1\n3;1;1;0\n")
    printed("report", *rows, "--out", page, "--costs", other)
    assert "Decisions at the stated costs" in page.read_text(encoding="utf-8")
    cells = re.findall(r"<td class=\"(?:right)?\">([\d,]+)</td>", page.read_text(encoding="utf-8"))
    judged = answer("evaluate", *rows, "--costs", other)
    assert [int(cell.replace(",", "")) for cell in cells] == [int(n) for row in judged["confusion"] for n in row]
    err = refusal("report", *rows, "--out", page, "--weighting", "fine=1,worn out=2")
    assert err == "crcen: every value of state needs a weight: 3 has none."
    err = refusal("report", *rows, "--out", page, "--weighting", "none", "--costs", other, code=2)
    assert "both say what mistakes are worth" in err


def test_reasons_for_a_class(printed, refusal, folder, model_file):
    predict = ("predict", model_file, folder / "train.csv", "--out", folder / "why.csv")
    text = printed(*predict, "--reasons", 2)
    assert "Reasons of 300 rows, in log-odds of a class against the likeliest other one" in text
    written = pd.read_csv(folder / "why.csv", dtype={"decision": str})
    p = written[["probability_3", "probability_fine", "probability_worn out"]].to_numpy()
    names = np.array(["3", "fine", "worn out"])
    classes, rivals = written["reasons_for"].str.split(" rather than ", n=1, expand=True).to_numpy().T
    is_class = (written["decision"] != "look").to_numpy()
    assert 0 < is_class.sum() < 300
    np.testing.assert_array_equal(classes, np.where(is_class, written["decision"], names[p.argmax(axis=1)]))
    others = np.where(names == classes[:, None], -1, p)
    np.testing.assert_array_equal(rivals, names[others.argmax(axis=1)])
    assert written["reason_1"].str.contains(r"^(?:amount|b) .*: [+-][0-9.]+ log-odds$").all()
    err = refusal(*predict, "--background", folder / "train.csv")
    assert err == "crcen: --background must go with --reasons, which states how many."
