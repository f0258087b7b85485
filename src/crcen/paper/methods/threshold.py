"""A plain network whose threshold is moved instead of its weight."""

from crcen.models.classifier import CRCENClassifier
from crcen.theory.labels import Labels
from crcen.theory.weighting import ClassWeighting, resolve

__all__ = ["MovedThresholdClassifier"]


class MovedThresholdClassifier(CRCENClassifier):
    """Train with plain cross entropy (λ = ½), decide at the price of ``weighting``: positive where p > 1 − λ.

    The theory says that this nearly ties with training at λ, since both estimate the same posterior; it is the control
    of every claim about weighting. Parameters and attributes are those of `CRCENClassifier`; ``weighting_`` is the
    price of the decision and ``key_equation_`` that of the plain network.
    """

    is_control = True

    def training_weighting_at(self, price: ClassWeighting, labels: Labels) -> ClassWeighting:
        """λ = ½, whatever the price."""
        return resolve(None, price.n_pos, price.n_neg)
