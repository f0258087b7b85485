"""ModuleClassifier: any PyTorch module behind scikit-learn's interface, trained and decided at a stated price."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

from sklearn.utils import Tags

from crcen.exceptions import InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.models.fitting import FitRows
from crcen.models.options import Calibration, estimator
from crcen.models.validation import Seed
from crcen.theory.goals import ThresholdGoal
from crcen.theory.price import WeightingLike
from crcen.training.engines import Engine
from crcen.training.recipe import Inputs, Recipe, Schedule


@estimator
class ModuleClassifier(CRCENClassifier):
    """A PyTorch module as a classifier for rare events: rows of any shape, two classes or more.

    Everything but the network is that of `CRCENClassifier`: price, weighted loss, averaged members, early stopping,
    balance solve, natural probabilities and decisions. Training uses autograd.

    Parameters
    ----------
    module : nn.Module or factory
        A function or class without arguments creates each member from its own seed; an instance is copied, and members
        then differ by batches and dropout. It returns logits (rows,), (rows, 1) or (rows, 2) for two classes, the last
        column for the positive one, and (rows, K) for K.
    optimizer : class of ``torch.optim`` or callable, optional
        A class gets the parameters and the learning rate of the schedule, anything else the parameters alone, such as
        ``lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)``. Its rates are the peaks of one cycle. Default: Adam.
    l2 : float, default=0
        Penalty on parameters with two or more dimensions.
    n_members : int, default=1
        Modules trained and averaged as logits.
    calibration : {"paper", "out_of_fold", None} or Calibration, default="paper"
        As in `CRCENClassifier`; folds are four more trainings of each member.
    weighting, max_epochs, schedule, pos_label, device, random_state, verbose
        As in `CRCENClassifier`.

    Attributes
    ----------
    ensemble_, classes_, weighting_, key_equation_, n_iter_, loss_curve_, status_
        As in `CRCENClassifier`.
    row_shape_ : tuple of int
        Shape of one row.

    Notes
    -----
    X may be an array or a tensor of any shape (rows, …). Real numbers reach the module unscaled in single precision,
    integers as int64. `crcen.save` stores arrays only; ``crcen.load(path, module=...)`` needs the module or factory.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from torch import nn
    >>> from crcen import Budget, ModuleClassifier
    >>> X, y = make_classification(400, weights=[0.9], random_state=0)
    >>> net = lambda: nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> clf = ModuleClassifier(net, Budget(5), max_epochs=3, random_state=0).fit(X, y)
    >>> clf.key_equation_.residual < 1e-12
    True
    """

    takes_any_shape = True  # of rows
    can_cut = False  # the schedule of a given optimizer cannot be cut

    def __init__(
        self,
        module: object = None,
        weighting: WeightingLike | ThresholdGoal = "balanced",
        *,
        optimizer: object = None,
        l2: float = 0.0,
        n_members: int = 1,
        max_epochs: int | None = None,
        schedule: Schedule | None = None,
        calibration: str | Calibration | None = "paper",
        pos_label: object = None,
        device: str = "auto",
        random_state: Seed = None,
        verbose: int = 0,
    ) -> None:
        self.module, self.weighting, self.optimizer, self.l2 = module, weighting, optimizer, l2
        self.n_members, self.max_epochs, self.schedule = n_members, max_epochs, schedule
        self.calibration, self.pos_label, self.device = calibration, pos_label, device
        self.random_state, self.verbose = random_state, verbose

    def recipe(self) -> Recipe:
        """The training recipe of these parameters, which are validated."""
        if self.module is None:
            raise InvalidParameter("module must be an nn.Module or a factory: got None.")
        self._check_parameters()
        schedule = Schedule.of(self.schedule)
        if schedule.needs_all_rows:
            raise InvalidParameter("modules are trained in batches: leave solver out, and give optimizer.")
        own = {"hidden": (), "l2": self.l2, "max_epochs": self.max_epochs, "encoding": "standard"}
        balance = bool(self._calibration().balance)
        return Recipe.combined(schedule.in_batches(), Inputs(standardize=False), balance=balance, **own)

    def training_on(self, rows: FitRows) -> Engine:
        """Training of jobs by autograd."""
        from crcen.training.modules import train_modules  # torch is for fitting alone

        own = rows.X, rows.engine_target, self.module, self.optimizer
        return partial(train_modules, *own, sample_weight=rows.weights, device=self.device)

    def without_code(self) -> ModuleClassifier:
        """The same with arrays instead of modules, for files."""
        bare = copy.copy(self)
        bare.module = bare.optimizer = None
        own: Any = self.ensemble_.members
        bare.ensemble_ = replace(self.ensemble_, members=tuple(replace(one, module=None) for one in own))
        return bare

    def around(self, module: object) -> ModuleClassifier:
        """A loaded classifier with the module that its arrays belong to."""
        self.module = module
        own: Any = self.ensemble_.members
        self.ensemble_ = replace(self.ensemble_, members=tuple(one.filled(module) for one in own))
        return self

    def __sklearn_tags__(self) -> Tags:
        """Rows of any shape; sparse ones are made dense."""
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
