"""Losses of other papers against their formulas, their exact inverses, and the networks trained with them."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from torch.nn.functional import cross_entropy

import crcen
import crcen.torch
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.paper import loss_networks as networks
from crcen.paper import losses
from crcen.paper.losses import ClassRectificationLoss, FocalLoss, LDAMLoss, LearnedCostLoss, LogitAdjustedLoss
from crcen.paper.methods import make_method

OneSided, Quintuplets = losses.OneSidedRegressionLoss, losses.QuintupletLoss
LOGITS = torch.tensor([[0.3, -1.2, 0.5], [2.0, 0.1, -0.4], [-0.7, 0.9, 0.2], [0.0, 0.0, 1.5]], dtype=torch.float64)
TARGET = torch.tensor([0, 1, 2, 2])
COUNTS = [70, 20, 10]
ROWS = list(zip(LOGITS.tolist(), TARGET.tolist(), strict=True))


def softmax(row):
    top = [math.exp(v) for v in row]
    return [v / sum(top) for v in top]


def test_crcen_torch_exports_the_losses_on_first_use():
    for name in crcen.torch._LOSSES:
        assert getattr(crcen.torch, name) is getattr(losses, name)
        assert name in dir(crcen.torch)
    with pytest.raises(AttributeError, match="no attribute 'Focal'"):
        crcen.torch.Focal  # noqa: B018


def test_logit_adjustment_is_cross_entropy_of_moved_logits():
    moved = [0.5 * math.log(c / 100) for c in COUNTS]
    by_hand = [-math.log(softmax([z + m for z, m in zip(row, moved, strict=True)])[y]) for row, y in ROWS]
    assert float(LogitAdjustedLoss(COUNTS, tau=0.5)(LOGITS, TARGET)) == pytest.approx(np.mean(by_hand), rel=1e-6)
    # Without inputs the best natural logits are the log shares, so that z is constant.
    y = torch.repeat_interleave(torch.arange(3), torch.tensor(COUNTS))
    z = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    loss = LogitAdjustedLoss(COUNTS)
    loss(z.expand(100, 3), y).backward()
    assert z.grad.abs().max() < 1e-7
    assert loss.natural_logits(z.expand(1, 3)).softmax(1)[0].tolist() == pytest.approx([0.7, 0.2, 0.1], rel=1e-6)


def test_one_logit_is_the_pair_of_zero_and_it():
    o, y = torch.tensor([0.4, -1.0, 2.0]), torch.tensor([1.0, 0.0, 0.0])
    pair = torch.stack([torch.zeros(3), o], dim=1)
    for loss in (LogitAdjustedLoss([90, 10]), FocalLoss(1.5), LDAMLoss([90, 10]), ClassRectificationLoss([90, 10])):
        assert float(loss(o, y)) == pytest.approx(float(loss(pair, y.long())), rel=1e-6)
        assert float(loss(o[:, None], y[:, None])) == pytest.approx(float(loss(o, y)), rel=1e-6)


def test_focal_loss_by_hand_and_at_gamma_zero():
    by_hand = [-((1 - softmax(row)[y]) ** 2) * math.log(softmax(row)[y]) for row, y in ROWS]
    assert float(FocalLoss(2.0)(LOGITS, TARGET)) == pytest.approx(np.mean(by_hand), rel=1e-9)
    weighted = np.mean([b * [1.0, 2.0, 3.0][y] for b, (_, y) in zip(by_hand, ROWS, strict=True)])
    assert float(FocalLoss(2.0, weights=[1.0, 2.0, 3.0])(LOGITS, TARGET)) == pytest.approx(weighted, rel=1e-9)
    assert float(FocalLoss(0.0)(LOGITS, TARGET)) == pytest.approx(float(cross_entropy(LOGITS, TARGET)), rel=1e-12)
    sure = torch.tensor([[80.0, -80.0]], requires_grad=True)
    FocalLoss(0.5)(sure, torch.tensor([0])).backward()
    assert sure.grad.isfinite().all()
    for bad in (torch.tensor([0, 1, 2, 3]), torch.tensor([0.5, 0, 1, 2]), torch.tensor([0, 1])):
        with pytest.raises(InvalidInput, match="class number"):
            FocalLoss()(LOGITS, bad)


def test_ldam_margins_follow_the_fourth_root_and_only_the_true_class_pays():
    loss = LDAMLoss([16, 81, 1], max_margin=0.6, scale=3.0)
    assert loss.margins.tolist() == pytest.approx([0.6 / 2, 0.6 / 3, 0.6])
    row, y = ROWS[2]
    moved = [3.0 * (z - 0.6 * (k == y)) for k, z in enumerate(row)]
    assert float(loss(LOGITS[2:3], TARGET[2:3])) == pytest.approx(-math.log(softmax(moved)[y]), rel=1e-6)


def test_effective_numbers_range_from_no_weights_to_balanced_ones():
    assert losses.effective_number_weights([50, 5], beta=0.0).tolist() == [1.0, 1.0]
    near_one = losses.effective_number_weights([50, 5], beta=1 - 1e-9)
    assert near_one[1] / near_one[0] == pytest.approx(10.0, rel=1e-6)
    some = losses.effective_number_weights([50, 5], beta=0.9)
    assert some[1] / some[0] == pytest.approx((1 - 0.9**50) / (1 - 0.9**5))
    crcen.torch.ClassWeightedLoss(some)(LOGITS[:, :2], TARGET.clamp(max=1))


def test_one_sided_regression_by_hand():
    costs = [[0.0, 1.0, 4.0], [3.0, 0.0, 3.0], [9.0, 9.0, 0.0]]
    pairs = [(r, c, min(costs[y])) for row, y in ROWS for r, c in zip(row, costs[y], strict=True)]
    total = sum(math.log1p(math.exp((1 if c == least else -1) * (r - c))) for r, c, least in pairs)
    assert float(OneSided(costs)(LOGITS, TARGET)) == pytest.approx(total / 4, rel=1e-6)
    with pytest.raises(InvalidInput, match="a cost for each of 2 actions"):
        OneSided([[0.0, 1.0], [5.0, 0.0]])(LOGITS, TARGET)


def test_learned_costs_at_the_shares_are_logit_adjustment_and_descend_to_their_target():
    fixed = LearnedCostLoss(3, torch.tensor([0.7, 0.2, 0.1]).expand(3, 3))
    assert float(fixed(LOGITS, TARGET)) == pytest.approx(float(LogitAdjustedLoss(COUNTS)(LOGITS, TARGET)), rel=1e-6)
    assert float(LearnedCostLoss(3)(LOGITS, TARGET)) == pytest.approx(float(cross_entropy(LOGITS, TARGET)), rel=1e-12)
    loss, target = LearnedCostLoss(2), torch.tensor([[0.9, 0.5], [0.5, 0.1]])
    distances = []
    for _ in range(30):
        distances.append(float((loss.costs - target).square().sum()))
        loss.move_costs(target, 0.2)
    assert all(b == pytest.approx(0.64 * a, rel=1e-3) for a, b in pairwise(distances[:9]))
    assert loss.costs.flatten().tolist() == pytest.approx(target.flatten().tolist(), abs=2e-3)


def test_separability_and_target_of_four_rows_on_a_line():
    x, y = torch.tensor([[0.0], [1.0], [4.0], [6.0]]), torch.tensor([0, 0, 1, 1])
    found = losses.class_separability(x, y, 2)  # class 0: 1/4 and 1/3; class 1: 2/3 and 2/5
    assert found.flatten().tolist() == pytest.approx([0.0, (1 / 4 + 1 / 3) / 2, (2 / 3 + 2 / 5) / 2, 0.0])
    target = losses.target_costs([30, 10], found, torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
    assert float(target[1, 0]) == pytest.approx(0.75 * math.exp(-0.5 * (float(found[1, 0]) ** 2 + 0.4**2)), rel=1e-6)
    assert float(target[1, 1]) == pytest.approx(0.25 * math.exp(-0.5 * 0.6**2), rel=1e-6)


def test_class_rectification_on_six_rows():
    """Two positives of six: q = .9, .4; the hardest negative has .7."""
    q, y = torch.tensor([0.9, 0.4, 0.7, 0.1, 0.2, 0.3], dtype=torch.float64), torch.tensor([1, 1, 0, 0, 0, 0])
    loss = ClassRectificationLoss([4, 2], hardest=1)
    # The positive at .4 is the hard one, and the only other anchor that at .9: .5 + (.9 − .4) − (.9 − .7) = .8.
    assert loss.triplets(torch.stack([1 - q, q], dim=1), y).tolist() == pytest.approx([0.8])
    assert loss.share == pytest.approx(0.5 - 2 / 6)
    plain = float(torch.nn.functional.binary_cross_entropy(q, y.double()))
    found = float(loss(torch.log(q) - torch.log1p(-q), y))
    assert found == pytest.approx((1 - loss.share) * plain + loss.share * 0.8, rel=1e-9)
    every = ClassRectificationLoss([4, 2], hardest=2).triplets(torch.stack([1 - q, q], dim=1), y)
    expected = [max(0.0, 0.5 + 0.5 - (a - n)) for a in (0.9, 0.4) for n in (0.7, 0.3)]
    assert sorted(every.tolist()) == pytest.approx(sorted(expected))
    # A batch without rare rows is cross entropy.
    logits, none = torch.tensor([0.1, 0.2, -0.3]), torch.zeros(3)
    pair = torch.stack([torch.zeros(3), logits], dim=1)
    assert float(loss(logits, none)) == pytest.approx(float(cross_entropy(pair, none.long())), rel=1e-6)


def test_quintuplets_on_six_rows_of_the_unit_circle():
    angles = torch.tensor([0.0, 0.3, 1.0, 1.6, 2.2, 3.0], dtype=torch.float64)
    y, cluster = torch.tensor([1, 1, 1, 1, 0, 0]), torch.tensor([0, 0, 1, 1, 2, 2])
    z = torch.stack([angles.cos(), angles.sin()], dim=1) * 3.0
    total = 0.0
    for i in range(6):
        d = (2 - 2 * torch.cos(angles[i] - angles)).tolist()
        far_own = max(d[j] for j in range(6) if j != i and cluster[j] == cluster[i])
        near = [d[j] for j in range(6) if y[j] == y[i] and cluster[j] != cluster[i]]
        rival = min(d[j] for j in range(6) if y[j] != y[i])
        terms = [0.9 + far_own - rival]
        if near:
            terms = [0.5 + far_own - min(near), 0.4 + min(near) - max(near), 0.9 + max(near) - rival]
        total += sum(max(0.0, term) for term in terms)
    assert float(Quintuplets((0.5, 0.4, 0.9))(z, y, cluster)) == pytest.approx(total / 6, rel=1e-9)


def test_gradients_agree_with_finite_differences():
    given = [LogitAdjustedLoss(COUNTS), FocalLoss(2.0), LDAMLoss(COUNTS), ClassRectificationLoss(COUNTS)]
    given += [OneSided([[0, 1, 2], [3, 0, 1], [5, 5, 0]]), LearnedCostLoss(3, torch.rand(3, 3) + 0.5)]
    for loss in given:
        loss.double()
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, TARGET), (LOGITS.clone().requires_grad_(),))
    cluster = torch.tensor([0, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: Quintuplets()(z, TARGET, cluster), (LOGITS.clone().requires_grad_(),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogitAdjustedLoss([5, 0]), "all above 0"),
        (lambda: FocalLoss(-1.0), "gamma must be at least 0"),
        (lambda: losses.effective_number_weights([3, 4], beta=1.0), "from 0 to below 1"),
        (lambda: LearnedCostLoss(2, [[1.0, 0.0], [1.0, 1.0]]), "above 0"),
        (lambda: ClassRectificationLoss([3, 4], hardest=0), "hardest must be at least 1"),
        (lambda: Quintuplets((1.0, 2.0)), "three numbers"),
        (lambda: LDAMLoss([3, 4], scale=0.0), "scale above 0"),
    ],
)
def test_invalid_parameter_is_rejected(make, words):
    with pytest.raises(InvalidParameter, match=words):
        make()


def invertible(n_classes):
    counts, weights = [900, 90, 10, 30, 4][:n_classes], np.linspace(1.0, 3.0, n_classes)
    focal = [*(FocalLoss(gamma) for gamma in (0.0, 0.5, 2.0, 5.0)), FocalLoss(2.0, weights=weights)]
    return [*focal, LDAMLoss(counts), LDAMLoss(counts, max_margin=2.0, scale=3.0, weights=weights)]


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_outputs_are_stationary_for_the_posterior_of_natural_logits(n_classes):
    outputs = torch.randn(30, n_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for loss in invertible(n_classes):
        p = loss.double().natural_logits(outputs).softmax(dim=1)
        for row, own in zip(outputs, p, strict=True):
            z = row[None].clone().requires_grad_()
            slopes = [torch.autograd.grad(loss(z, torch.tensor([k])), z)[0][0] for k in range(n_classes)]
            terms = own[:, None] * torch.stack(slopes)  # ∂ℓ(z, k)/∂z of every class
            assert terms.sum(dim=0).abs().max() < 1e-9 * terms.abs().sum()


def test_log_odds_of_two_classes_are_monotone_and_exact_at_both_ends():
    o = torch.linspace(-300, 300, 1201, dtype=torch.float64)
    for loss in invertible(2):
        natural = loss.double().natural_logits(o)
        log_odds = natural[:, 1] - natural[:, 0]
        assert log_odds.isfinite().all()
        assert (log_odds.diff() > 0).all()
        shift = 0.0 if loss.weights is None else float(torch.log(loss.weights[1] / loss.weights[0]))
        if isinstance(loss, FocalLoss):  # (1 + γ)o − log(1 + γ) as o → ∞, and its mirror
            end = (1 + loss.gamma) * 300 - math.log1p(loss.gamma)
            ends = [-end - shift, end - shift]
        else:  # s(o − Δ₁) as o → ∞, s(o + Δ₀) as o → −∞
            low, high = loss.margins.tolist()
            ends = [loss.scale * (-300 + low) - shift, loss.scale * (300 - high) - shift]
        assert log_odds[[0, -1]].tolist() == pytest.approx(ends, rel=1e-12)


SOSR, LMLE = networks.OneSidedRegressionClassifier, networks.EmbeddedNeighboursClassifier
NATURAL = [make_method(name) for name in ("logit_adjustment", "class_balanced", "focal", "ldam")]
OTHERS = [*(make_method(name) for name in ("crl", "cosen", "msfe", "sosr")), LMLE(cluster_size=60)]
LIGHT = {"hidden": (8,), "max_epochs": 12, "schedule": crcen.Schedule(batch_size=32), "random_state": 0}


def named(models):
    return pytest.mark.parametrize("model", models, ids=lambda m: type(m).__name__)


def table(n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.choice(n_classes, size=400, p=[0.8, 0.2] if n_classes == 2 else [0.7, 0.2, 0.1])
    X = rng.normal(size=(400, 3)) * [1.0, 5.0, 0.1]
    X[:, 0] += 2.5 * y
    return X, np.array(["ok", "bad", "worse"])[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@named(NATURAL + OTHERS)
def test_network_learns_and_a_failed_fit_changes_nothing(model, n_classes):
    X, y = table(n_classes)
    fitted = clone(model).set_params(**LIGHT).fit(X, y)
    assert (fitted.predict(X) == y).mean() > 0.75
    p = fitted.predict_proba(X)
    assert fitted.decision_function(X).shape == ((400,) if n_classes == 2 else (400, 3))
    with pytest.raises(crcen.InvalidInput, match="two classes"):
        fitted.fit(X[:, :2], np.zeros(len(X)))
    np.testing.assert_array_equal(fitted.predict_proba(X), p)
    if isinstance(model, networks.LearnedCostClassifier) and n_classes == 2:
        assert (fitted.costs_ < 1).all()
        assert fitted.costs_[0, 0] < fitted.costs_[1, 1]  # "bad" is the rarer one, and first


@pytest.mark.parametrize("n_classes", [2, 3])
@named(NATURAL)
def test_natural_probabilities_match_a_known_posterior(model, n_classes):
    """Normal classes with unit variance: the posterior is softmax of log π_k + μ_k·x − ½μ_k²."""
    rng = np.random.default_rng(0)
    shares, means = ([0.9, 0.1], [0.0, 1.5]) if n_classes == 2 else ([0.8, 0.15, 0.05], [0.0, 1.5, 3.0])
    y = rng.choice(n_classes, size=6000, p=shares)
    x = rng.normal(size=6000) + np.array(means)[y]
    logits = np.log(shares) + np.outer(x, means) - np.square(means) / 2
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fitted = clone(model).set_params(hidden=(8,), max_epochs=15, random_state=0).fit(x[:, None], y)
    p = fitted.predict_proba(x[:, None])
    assert p.mean(axis=0) == pytest.approx(np.bincount(y) / 6000, abs=0.012)
    assert np.abs(p - truth).mean() < 0.02
    if isinstance(model, networks.FocalClassifier | networks.LDAMClassifier):  # outputs are no posterior
        raw = torch.from_numpy(fitted._outputs(x[:, None])).softmax(dim=1).numpy()
        assert np.abs(raw - truth).mean() > 1.5 * np.abs(p - truth).mean()
        assert (fitted.predict(x[:, None]) == raw.argmax(axis=1)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_msfe_gradient_is_that_of_the_sum_of_squared_class_errors(n_classes):
    rng = np.random.default_rng(1)
    y = torch.tensor(rng.choice(n_classes, size=60, p=[0.7, 0.3] if n_classes == 2 else [0.6, 0.3, 0.1]))
    logits = torch.tensor(rng.normal(size=(60, n_classes)), requires_grad=True)
    squares = ((torch.nn.functional.one_hot(y) - logits.softmax(dim=1)) ** 2).sum(dim=1)
    errors = torch.stack([squares[y == k].mean() for k in range(n_classes)])
    expected = torch.autograd.grad((errors**2).sum(), logits)[0]
    loss = networks._WeightedSquaredError(n_classes).double()
    loss.set_errors(errors.detach(), torch.bincount(y).double().numpy())
    ratio = torch.autograd.grad(loss(logits, y), logits)[0] / expected
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_msfe_weights_follow_the_class_errors(n_classes):
    rng = np.random.default_rng(0)
    y = np.minimum(np.arange(400) % 10, n_classes - 1)
    X = rng.normal(size=(400, 3)) + 1.2 * y[:, None]
    model = networks.MeanSquaredFalseErrorClassifier(hidden=(8,), max_epochs=12, random_state=0).fit(X, y)
    weights, counts = model.class_weights_, np.bincount(y)
    assert weights.shape == (12, n_classes)
    assert (weights[0], weights @ counts) == (pytest.approx(400 / (n_classes * counts)), pytest.approx(400))
    q = torch.from_numpy(model._outputs(X)).softmax(dim=1).numpy()
    squares = ((np.eye(n_classes)[y] - q) ** 2).sum(axis=1)
    errors = np.array([squares[y == k].mean() for k in range(n_classes)])
    # The last epoch moves the network once more, by a small step at the end of the one-cycle rate.
    assert weights[-1] / weights[-1, 0] == pytest.approx(errors / counts / (errors[0] / counts[0]), rel=0.1)
    weighted = model.predict_proba(X) * weights[-1]
    assert weighted / weighted.sum(axis=1, keepdims=True) == pytest.approx(q)
    if n_classes == 2:
        assert model.weighting_.cost_ratio == pytest.approx(weights[-1, 0] / weights[-1, 1])  # class 0 is rarer


def test_one_sided_regression_follows_the_costs_and_rejects_other_prices():
    X, y = table(2)
    cheap, dear = (SOSR(crcen.Budget(c), **LIGHT).fit(X, y).predict(X) for c in (1.0, 30.0))
    assert (dear == "bad").sum() > (cheap == "bad").sum()
    stated = crcen.CostMatrix([[0, 30], [1, 0]], labels=["bad", "ok"])
    np.testing.assert_array_equal(SOSR(stated, **LIGHT).fit(X, y).predict(X), dear)

    X, y = table(3)
    with pytest.raises(crcen.InvalidParameter, match="price for two classes"):
        SOSR(crcen.Budget(3), **LIGHT).fit(X, y)
    review = crcen.CostMatrix(1 - np.eye(3)).with_review(0.3)
    with pytest.raises(crcen.InvalidParameter, match="classes alone"):
        SOSR(review, **LIGHT).fit(X, y)


def test_margin_of_embedded_neighbours_by_hand():
    """Clusters on a circle, two neighbours, the last of which counts."""
    model = LMLE(n_neighbors=2)
    model.classes_ = model.cluster_classes_ = np.array([0, 1])
    angle = np.array([0.0, 0.1, 0.3, 2.0, 2.2])
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    model.cluster_rows_ = [points[:3], points[3:]]
    model.centres_ = np.stack([points[:3].mean(axis=0), points[3:].mean(axis=0)])
    d = dict(zip(angle.tolist(), (2 - 2 * np.cos(0.05 - angle)).tolist(), strict=True))
    scores = model._scores(7.0 * np.array([[np.cos(0.05), np.sin(0.05)]]))
    assert scores[0] == pytest.approx([d[2.0] - max(d[0.0], d[0.1]), min(d[0.0], d[0.1]) - d[2.2]])


def test_clusters_and_neighbours_are_limited_and_rows_on_one_point_make_one_cluster():
    X, y = table(2)
    model = LMLE(cluster_size=20, **{**LIGHT, "l2": 1e4, "max_epochs": 3}).fit(X, y)
    assert len(model.cluster_rows_) == len(model.cluster_classes_)
    assert min(map(len, model.cluster_rows_)) > 0
    assert np.isfinite(model.predict_proba(X)).all()
    same = LMLE(cluster_size=20, **{**LIGHT, "max_epochs": 2}).fit(np.zeros_like(X), y)
    assert len(same.cluster_rows_) == 2
    X, y = make_classification(300, 4, random_state=0)
    model = LMLE(cluster_size=2, max_neighbors=3, **{**LIGHT, "max_epochs": 1}).fit(X, y)
    assert (max(np.bincount(model.cluster_classes_)), max(map(len, model.cluster_rows_))) == (10, 3)
    assert model.n_kept_ == sum(map(len, model.cluster_rows_)) <= 60
    assert model.n_rows_ == 300
    with pytest.raises(crcen.InvalidParameter, match="max_neighbors"):
        LMLE(max_neighbors=0).fit(X, y)
