"""What people may expect of every system that the paper names: frames, words as labels, errors of one sentence."""

import warnings

import numpy as np
import pandas as pd
import pytest

from crcen import METHODS, InvalidInput, PosteriorCorrection
from crcen.paper.networks import ResampledClassifier
from method_parameters import light

SYSTEMS = [
    *("adaboost", "balanced_bagging", "adac1", "adac2", "adac3", "balance_cascade", "eusboost", "gsvm_ru"),
    *("mfe", "msfe", "sosr", "cosen", "s2s", "crl", "lmle", "logit_adjustment", "ldam", "focal", "class_balanced"),
]
THEIRS = {"adaboost", "balanced_bagging"}  # checked by the libraries they come from
OF_TWO_CLASSES = {"adac1", "adac2", "adac3", "balance_cascade", "eusboost", "gsvm_ru", "s2s"}
quiet = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(160) < 30).astype(int)
    X = rng.normal(size=(160, 3))
    X[:, 0] += 2 * y
    return pd.DataFrame(X, columns=["age", "size", "rate"]), pd.Series(np.where(y == 1, "bad", "ok"))


@quiet
@pytest.mark.parametrize("name", SYSTEMS)
def test_frames_and_words(frame, name):
    X, y = frame
    model = light(name).fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.classes_.tolist() == ["bad", "ok"]
    p = model.predict_proba(X)
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert p[y == "bad", 0].mean() > p[y == "ok", 0].mean()
    np.testing.assert_array_equal(p, light(name).fit(X, y).predict_proba(X))  # the same seed, the same answers
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"age": "weight"}))


def sentence(error):
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - THEIRS))
def test_bad_rows_are_refused_in_a_sentence(frame, name):
    X, y = frame
    hole = X.copy()
    hole.loc[3, "size"] = np.nan
    with pytest.raises(InvalidInput, match="contains NaN in column") as error:
        light(name).fit(hole, y)
    sentence(error)
    with pytest.raises(InvalidInput, match="got one class only, 'ok'") as error:
        light(name).fit(X, np.full(len(y), "ok"))
    sentence(error)
    with pytest.raises(InvalidInput, match="must hold labels of classes"):
        light(name).fit(X, X["rate"])


@quiet
@pytest.mark.parametrize("name", SYSTEMS)
def test_more_classes_are_learned_or_refused_in_a_sentence(frame, name):
    X, y = frame
    three = np.where(np.arange(len(y)) % 7 == 0, "odd", y)
    if name in OF_TWO_CLASSES:
        with pytest.raises(InvalidInput, match="Only binary classification is supported") as error:
            light(name).fit(X, three)
        sentence(error)
        return
    p = light(name).fit(X, three).predict_proba(X)
    assert p.shape == (len(X), 3)
    assert p.sum(axis=1) == pytest.approx(1.0)


# -- probabilities ---------------------------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", METHODS)
def test_posterior_correction_does_what_the_registry_says(frame, name):
    """30 of 160 rows are positive: a factor of 13/3 where the classes were drawn evenly."""
    X, y = frame
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PosteriorCorrection(light(name), price=None).fit(X.to_numpy(), y)
    doubts = [str(one.message) for one in caught if "a prior shift cannot be exact here" in str(one.message)]
    assert len(doubts) == (METHODS[name].probabilities == "calibrate")
    if METHODS[name].probabilities != "calibrate":
        assert model.odds_factor_ == pytest.approx(13 / 3 if METHODS[name].probabilities == "factor" else 1.0)


@pytest.mark.parametrize(
    "name", ["logit_adjustment", "class_balanced", "s2s", "mlp_threshold", "sosr", "focal", "ldam", "msfe"]
)
def test_the_price_of_training_is_that_of_its_own_decisions(frame, name):
    X, y = frame
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PosteriorCorrection(light(name)).fit(X.to_numpy(), y)
    own = model.estimator_
    assert own.pos_label_ == "bad"
    assert model.price_.cost_ratio == pytest.approx(own.weighting_.cost_ratio)
    if name != "sosr":  # which has no probabilities to decide by
        same = (model.predict(X.to_numpy()) == own.predict(X.to_numpy())).mean()
        assert same > 0.9 if name == "s2s" else same == 1.0  # votes and their mean may part
    if name in ("logit_adjustment", "sosr"):
        assert own.weighting_.cost_ratio == pytest.approx(13 / 3)


def test_what_is_changed_is_one_of_five_things():
    for method in METHODS.values():
        assert set(method.changes.split()) <= {"rows", "loss", "margin", "threshold", "vote"}
        assert method.probabilities in ("natural", "factor", "calibrate")
    assert isinstance(METHODS["smote"].make(), ResampledClassifier)
    assert METHODS["smote"].probabilities == "calibrate"
