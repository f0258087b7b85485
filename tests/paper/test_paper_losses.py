"""Losses of other papers against their formulas written out by hand, and the exact inverses of focal loss and LDAM."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import crcen.torch
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.paper import losses as module
from crcen.paper.losses import (
    ClassRectificationLoss,
    FocalLoss,
    LDAMLoss,
    LearnedCostLoss,
    LogitAdjustedLoss,
    OneSidedRegressionLoss,
    QuintupletLoss,
    class_separability,
    effective_number_weights,
    target_costs,
)

LOGITS = torch.tensor([[0.3, -1.2, 0.5], [2.0, 0.1, -0.4], [-0.7, 0.9, 0.2], [0.0, 0.0, 1.5]], dtype=torch.float64)
TARGET = torch.tensor([0, 1, 2, 2])
COUNTS = [70, 20, 10]
ROWS = list(zip(LOGITS.tolist(), TARGET.tolist(), strict=True))


def softmax(row):
    top = [math.exp(v) for v in row]
    return [v / sum(top) for v in top]


def test_crcen_torch_exports_the_losses_on_first_use():
    for name in crcen.torch._LOSSES:
        assert getattr(crcen.torch, name) is getattr(module, name)
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
    assert effective_number_weights([50, 5], beta=0.0).tolist() == [1.0, 1.0]
    near_one = effective_number_weights([50, 5], beta=1 - 1e-9)
    assert near_one[1] / near_one[0] == pytest.approx(10.0, rel=1e-6)
    some = effective_number_weights([50, 5], beta=0.9)
    assert some[1] / some[0] == pytest.approx((1 - 0.9**50) / (1 - 0.9**5))
    crcen.torch.ClassWeightedLoss(some)(LOGITS[:, :2], TARGET.clamp(max=1))


def test_one_sided_regression_by_hand():
    costs = [[0.0, 1.0, 4.0], [3.0, 0.0, 3.0], [9.0, 9.0, 0.0]]
    pairs = [(r, c, min(costs[y])) for row, y in ROWS for r, c in zip(row, costs[y], strict=True)]
    total = sum(math.log1p(math.exp((1 if c == least else -1) * (r - c))) for r, c, least in pairs)
    assert float(OneSidedRegressionLoss(costs)(LOGITS, TARGET)) == pytest.approx(total / 4, rel=1e-6)
    with pytest.raises(InvalidInput, match="a cost for each of 2 actions"):
        OneSidedRegressionLoss([[0.0, 1.0], [5.0, 0.0]])(LOGITS, TARGET)


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
    found = class_separability(x, y, 2)  # class 0: 1/4 and 1/3; class 1: 2/3 and 2/5
    assert found.flatten().tolist() == pytest.approx([0.0, (1 / 4 + 1 / 3) / 2, (2 / 3 + 2 / 5) / 2, 0.0])
    target = target_costs([30, 10], found, torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
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
    assert float(QuintupletLoss((0.5, 0.4, 0.9))(z, y, cluster)) == pytest.approx(total / 6, rel=1e-9)


def test_gradients_agree_with_finite_differences():
    given = [LogitAdjustedLoss(COUNTS), FocalLoss(2.0), LDAMLoss(COUNTS), ClassRectificationLoss(COUNTS)]
    given += [OneSidedRegressionLoss([[0, 1, 2], [3, 0, 1], [5, 5, 0]]), LearnedCostLoss(3, torch.rand(3, 3) + 0.5)]
    for loss in given:
        loss.double()
        assert torch.autograd.gradcheck(lambda z, loss=loss: loss(z, TARGET), (LOGITS.clone().requires_grad_(),))
    cluster = torch.tensor([0, 1, 2, 2])
    assert torch.autograd.gradcheck(lambda z: QuintupletLoss()(z, TARGET, cluster), (LOGITS.clone().requires_grad_(),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogitAdjustedLoss([5, 0]), "all above 0"),
        (lambda: FocalLoss(-1.0), "gamma must be at least 0"),
        (lambda: effective_number_weights([3, 4], beta=1.0), "from 0 to below 1"),
        (lambda: LearnedCostLoss(2, [[1.0, 0.0], [1.0, 1.0]]), "above 0"),
        (lambda: ClassRectificationLoss([3, 4], hardest=0), "hardest must be at least 1"),
        (lambda: QuintupletLoss((1.0, 2.0)), "three numbers"),
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


def gradients(loss, z):
    """∂ℓ(z, k)/∂z for every class k, (K, K)."""
    z = z[None].clone().requires_grad_()
    return torch.stack([torch.autograd.grad(loss(z, torch.tensor([k])), z)[0][0] for k in range(z.shape[1])])


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_outputs_are_stationary_for_the_posterior_of_natural_logits(n_classes):
    outputs = torch.randn(30, n_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for loss in invertible(n_classes):
        p = loss.double().natural_logits(outputs).softmax(dim=1)
        for row, own in zip(outputs, p, strict=True):
            terms = own[:, None] * gradients(loss, row)
            assert terms.sum(dim=0).abs().max() < 1e-9 * terms.abs().sum()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_natural_logits_of_the_minimised_expected_loss_are_the_posterior(n_classes):
    known = [[0.02, 0.98], [0.7, 0.3]] if n_classes == 2 else [[0.9, 0.08, 0.02], [0.2, 0.3, 0.5]]
    for loss, own in ((loss.double(), own) for loss in invertible(n_classes) for own in known):
        z = torch.zeros(1, n_classes, dtype=torch.float64, requires_grad=True)
        solver = torch.optim.LBFGS([z], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

        def expected(z=z, own=own, loss=loss, solver=solver):
            solver.zero_grad()
            total = sum(own[k] * loss(z, torch.tensor([k])) for k in range(n_classes))
            total.backward()
            return total

        solver.step(expected)
        assert loss.natural_logits(z.detach()).softmax(dim=1)[0].tolist() == pytest.approx(own, rel=1e-3)


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
        for row in torch.tensor([-2.0, 0.5], dtype=torch.float64):  # p/(1−p) = −ℓ₀′/ℓ₁′
            slope = gradients(loss, torch.stack([torch.zeros_like(row), row]))[:, 1]
            found = loss.natural_logits(row[None])[0]
            assert float(found[1] - found[0]) == pytest.approx(math.log(-slope[0] / slope[1]), rel=1e-9)
