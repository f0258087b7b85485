"""Every display draws what it was given, on axes given or new."""

import sys

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import crcen
from crcen import CostRatio, CRCENClassifier, ExpenseCurve, InvalidParameter
from crcen.exceptions import MissingExtra
from crcen.report.displays import DecisionCurveDisplay
from grouped_settings import grouped

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

TRAIN, NEW = (crcen.make_sim2(300, 3000, seed=seed) for seed in (1, 2))
PATH = [CostRatio(c) for c in (2.0, 5.0, 10.0, 20.0)]


@pytest.fixture(autouse=True)
def _close():
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    how = grouped(hidden=(), training_weighting="price", balance=True, random_state=0)
    return CRCENClassifier(**how).fit(TRAIN.X, TRAIN.y)


@pytest.fixture(scope="module")
def curve(model):
    return ExpenseCurve.from_predictions(NEW.y, model.predict_proba(NEW.X)[:, 1], PATH, n_resamples=100)


def drawn(display):
    """Render, so that every label and tick is laid out."""
    display.figure_.canvas.draw()
    return display


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_a_display_draws_on_the_axes_given(curve):
    _, ax = plt.subplots()
    display = drawn(curve.plot(ax=ax))
    assert (display.ax_, display.figure_, len(plt.get_fignums())) == (ax, ax.figure, 1)
    assert "" not in (ax.get_xlabel(), ax.get_ylabel())


def test_expense_curve_draws_points_intervals_noise_and_what_is_undefined_with_few_ticks(curve, model):
    display = drawn(curve.plot())
    points = display.ax_.containers[0].lines[0].get_ydata()
    np.testing.assert_allclose(points, [step.expense for step in curve.steps])
    (bars,) = display.ax_.containers[0].lines[2]
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, curve.intervals)
    assert "one model" in display.ax_.get_title(loc="left")
    q = model.weighted_proba(NEW.X)[:, 1]
    display = drawn(ExpenseCurve.from_predictions(NEW.y, q, PATH, n_resamples=100).plot())
    assert "expense, outside beyond noise, 95 % interval" in legend(display)
    y, p = [1, 1, 1, 0, 0, 0], [0.9, 0.4, 0.4, 0.1, 0.1, 0.1]
    prices = [CostRatio(c) for c in (0.5, 1, 2, 4)]
    display = drawn(ExpenseCurve.from_predictions(y, p, prices, n_resamples=50).plot())
    assert [text.get_text() for text in display.ax_.texts] == ["undefined: no row lies between the two thresholds"] * 2
    assert display.ax_.containers[0].lines[0].get_ydata()[0] == display.ax_.get_ylim()[0]  # a catch for nothing
    prices = [CostRatio(c) for c in np.geomspace(1, 50, 30)]
    p = model.predict_proba(NEW.X)[:, 1]
    display = drawn(ExpenseCurve.from_predictions(NEW.y, p, prices, n_resamples=20).plot())
    assert len(display.ax_.get_xticks()) <= 9
    rows = np.arange(300) % 3, np.random.default_rng(0).dirichlet([1, 1, 1], 300)
    display = drawn(ExpenseCurve.from_predictions(*rows, n_resamples=20).plot())
    assert len(display.ax_.texts) == 12
    assert {text.get_text().split()[0] for text in display.ax_.texts} == {"0", "1", "2"}


ROWS = np.array([[0.0], [1.0]])
PLAIN = LogisticRegression().fit(ROWS, [0, 1])


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: DecisionCurveDisplay.from_estimator(PLAIN, ROWS, [0, 1], kind="roc"), InvalidParameter, "net_benefit"),
        (lambda: DecisionCurveDisplay({}), InvalidParameter, "at least one model"),
    ],
)
def test_bad_input_is_refused(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


def test_without_matplotlib_the_extra_is_named(curve, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingExtra, match=r"crcen\[plots\]"):
        curve.plot()


@pytest.mark.parametrize("kind", ["net_benefit", "cost", "brier", "gains", "lift"])
def test_curves_of_decisions_draw_models_beside_no_model(kind, model):
    p = model.predict_proba(NEW.X)[:, 1]
    display = drawn(DecisionCurveDisplay.from_predictions(NEW.y, {"ours": p, "squared": p**2}, kind=kind))
    assert {label.partition(",")[0] for label in legend(display)} >= {"ours", "squared"}
    one = drawn(DecisionCurveDisplay.from_estimator(model, NEW.X, NEW.y, kind=kind))
    (line,) = [line for line in one.ax_.lines if line.get_label() in ("model", "model, as stated")]
    (same,) = [line for line in display.ax_.lines if line.get_label() in ("ours", "ours, as stated")]
    np.testing.assert_allclose(line.get_ydata(), same.get_ydata())


def test_curves_of_decisions_take_the_rows_of_any_classifier():
    texts, y = ["late again", "all well", "late", "well"] * 10, np.array([1, 0, 1, 0] * 10)
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y)
    drawn(DecisionCurveDisplay.from_estimator(model, texts, y))
    words = model[0].transform(texts)
    drawn(DecisionCurveDisplay.from_estimator(model[1], words, y))
