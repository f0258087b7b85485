"""A skorch net with decisions at a price: its criterion, one callback, natural probabilities.

python examples/torch_skorch.py
"""

import numpy as np
from skorch import NeuralNetClassifier
from torch import nn

import crcen
from crcen import CostRatio
from crcen.torch import ClassWeightedLoss
from crcen.torch.skorch import BalanceCallback, natural_probabilities

data = crcen.load_dataset("abalone")
order = np.random.default_rng(0).permutation(len(data.y))
X, y = data.X[order].astype(np.float32), data.y[order].astype(np.int64)
X = (X - X[:3000].mean(0)) / X[:3000].std(0)

price = CostRatio(15)  # a miss is worth 15 false alarms
balance = BalanceCallback()
net = NeuralNetClassifier(
    lambda: nn.Sequential(nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2)),
    criterion=ClassWeightedLoss,
    criterion__weighting=price,
    criterion__counts=np.bincount(y[:3000]),
    predict_nonlinearity=natural_probabilities(price),
    callbacks=[("balance", balance)],
    max_epochs=5,
    lr=0.05,
    train_split=None,
    verbose=0,
)
net.fit(X[:3000], y[:3000])
fitted = dict(net.callbacks_)["balance"]
print("key equation of the training rows, solved for:")
print(f"  left side {fitted.key_equation_.lhs:.4f}, right side {fitted.key_equation_.rhs:.4f}")

p = net.predict_proba(X[3000:])[:, 1]
counts = crcen.confusion_counts(y[3000:], crcen.decide(p, price))
print(f"on {len(p)} new rows: caught {counts.tp:.0f}, missed {counts.fn:.0f}, false alarms {counts.fp:.0f}")
print(f"mean probability {p.mean():.3f}, share of positives {y[3000:].mean():.3f}")
