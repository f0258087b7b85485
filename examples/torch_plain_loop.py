"""A plain PyTorch loop with decisions at a price: loss, balanced bias, natural probabilities.

python examples/torch_plain_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import crcen
from crcen import CostRatio
from crcen.theory.price import weighted_probability
from crcen.torch import ClassWeightedLoss, NaturalLogits, balance_, stationarity

torch.manual_seed(0)
data = crcen.load_dataset("abalone")
order = torch.randperm(len(data.y))
x = torch.from_numpy(data.X).float()[order]
y = torch.from_numpy(data.y)[order]
train, test = slice(0, 3000), slice(3000, None)
x = (x - x[train].mean(0)) / x[train].std(0)
loader = DataLoader(TensorDataset(x[train], y[train]), batch_size=64, shuffle=True)

price = CostRatio(15)  # a miss is worth 15 false alarms
net = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
loss = ClassWeightedLoss(price, counts=torch.bincount(y[train]))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(6):
    optimizer.param_groups[0]["lr"] = 0.01 * (1 - epoch / 6)
    for rows, target in loader:
        optimizer.zero_grad()
        loss(net(rows), target).backward()
        optimizer.step()

print(stationarity(net, loader, loss, loss=loss, optimizer=optimizer))
equation = balance_(net, loader, loss)
print(f"after balance_: residual {equation.residual:.1e} on the training rows")

natural = NaturalLogits(net, loss).eval()
with torch.no_grad():
    p = torch.sigmoid(natural(x[test])[:, 0])
alarms = crcen.decide(p, price)
counts = crcen.confusion_counts(y[test].numpy(), alarms)
new = crcen.key_equation(y[test], weighted_probability(p.double().numpy(), price), price)
print(f"on {len(p)} new rows: caught {counts.tp:.0f}, missed {counts.fn:.0f}, false alarms {counts.fp:.0f}")
print(f"key equation there: left side {new.lhs:.2f}, right side {new.rhs:.2f}")
