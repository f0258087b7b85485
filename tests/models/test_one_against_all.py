"""One against all on the estimators: Li, Li, Pan and Zhu's equation for every class, answers that sum to one."""

import numpy as np
import pytest
from class_rows import LABELS, WEIGHTS, draw
from scipy.special import expit

import crcen
from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, InvalidParameter
from crcen.theory.key_equation import key_equation
from grouped_settings import grouped


@pytest.fixture(scope="module")
def data():
    return draw(600, 0, each=3)


def light(weighting=WEIGHTS, **settings):
    settings = {"hidden": (6,), "max_epochs": 8, "n_members": 2, "encoding": "standard"} | settings
    return CRCENClassifier(weighting, **grouped(loss="one_against_all", random_state=0, **settings))


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_every_class_has_the_equation_of_two_by_itself(data, hidden):
    """Σ over a class of w (1 − σ) = Σ over the others of w σ, so that the ratio of the means of errors is fixed."""
    X, y, _ = data
    exact = {"training_weighting": "price", "balance": True, "probability": "shift"}
    model = light(hidden=hidden, **exact).fit(X, LABELS[y])
    (group,) = model.ensemble_.members
    for network in group.networks():
        sigmoids = expit(network.outputs(X))
        for k in range(4):
            own, mass = y == k, WEIGHTS[y]
            means = np.mean(1 - sigmoids[own, k]), np.average(sigmoids[~own, k], weights=mass[~own])
            assert means[0] / means[1] == pytest.approx(mass[~own].sum() / mass[own].sum(), rel=1e-9)
    # The answer sums to one, and what flows out of a class flows in again: both hold, each where it is said.
    assert key_equation(y, model.weighted_proba(X), WEIGHTS).residual <= 1e-12
    assert model.key_equation_.residual <= 1e-12


def test_probabilities_are_the_sigmoids_over_their_sum_without_the_weights(data):
    X, y, _ = data
    model = light(hidden=(), n_members=1, balance=False, probability="shift", training_weighting="price").fit(X, y)
    (network,) = model.ensemble_.members[0].networks()
    natural = expit(network.outputs(X)) / WEIGHTS
    np.testing.assert_allclose(model.predict_proba(X), natural / natural.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), (WEIGHTS * model.predict_proba(X)).argmax(axis=1))


def test_probabilities_are_natural_at_any_weights(data):
    """Near the true posterior on new rows, trained with weights or without; with the weights in them they are not."""
    X, y, _ = data
    new, labels, truth = draw(4000, 1)
    least = -np.log(truth[np.arange(4000), labels]).mean()
    for trained in (None, "price"):
        model = light(hidden=(), training_weighting=trained).fit(X, y)
        answers = (model.predict_proba(new), model.weighted_proba(new))
        natural, weighted = (-np.log(p[np.arange(4000), labels]).mean() for p in answers)
        # The odds of one class against three others are not quite linear.
        assert natural < 1.2 * least < 1.5 * least < weighted
        assert model.key_equation_.residual <= 1e-12
        assert model.key_equation_.rows == "out-of-fold rows"


def test_a_search_chooses_and_keeps_it(data, tmp_path):
    X, y, _ = data
    search = CRCENClassifierCV(
        WEIGHTS,
        **grouped(
            hidden=[()], l2=[1e-3, 1e-1], encoding="standard", loss="one_against_all", n_members=1, random_state=0
        ),
    ).fit(X, LABELS[y])
    assert search.recipe_.loss == "one_against_all"
    assert search.best_params_["l2"] == 1e-3
    softmaxes = CRCENClassifierCV(WEIGHTS, hidden=[()], l2=[1e-3], encoding="standard", n_members=1, random_state=0)
    other = softmaxes.fit(X, LABELS[y]).oof_proba_
    assert np.abs(search.oof_proba_ - other).max() > 1e-3
    losses = [-np.log(p[np.arange(len(y)), y]).mean() for p in (search.oof_proba_, other)]
    assert losses[0] == pytest.approx(losses[1], rel=0.1)
    loaded = crcen.load(crcen.save(search, tmp_path / "search.crcen"))
    np.testing.assert_array_equal(loaded.predict_proba(X), search.predict_proba(X))
    assert loaded.get_params()["schedule__loss"] == "one_against_all"


def test_graphs_answer_alike(data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    X, y, _ = data
    model = light(CostMatrix(1.0 - np.eye(4)), max_epochs=2).fit(X, y)
    path = crcen.export_onnx(model, tmp_path / "model.onnx").path
    session = onnxruntime.InferenceSession(str(path))
    far = np.vstack([X, 1e6 * X[:50]])  # where a sigmoid is 0 in double precision
    p, decided = session.run(["probabilities", "decision"], {session.get_inputs()[0].name: far})
    np.testing.assert_allclose(p, model.predict_proba(far), atol=1e-9)
    np.testing.assert_array_equal(np.ravel(decided), model.predict(far))


def test_what_has_no_meaning_is_refused(data):
    X, y, _ = data
    own = grouped(loss="one_against_all")
    for model in (CRCENClassifier(**own), CRCENClassifierCV(CostMatrix([[0, 1], [5, 0]]), **own)):
        with pytest.raises(InvalidParameter, match="is for more than two classes: with two, each is against the other"):
            model.fit(X, y == 0)
    with pytest.raises(InvalidParameter, match=r"loss must be one of .*'one_against_all'.*'hinge'"):
        CRCENClassifier(**grouped(loss="hinge")).fit(X, y)
    with pytest.raises(InvalidParameter, match="partial_fit learns one softmax"):
        light().partial_fit(X, y)
    with pytest.raises(InvalidParameter, match="loss must be 'cross_entropy' here, got 'one_against_all'"):
        crcen.fit_stream([(X, y)], weighting=WEIGHTS, **own)
