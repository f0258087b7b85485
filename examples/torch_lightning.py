"""A Lightning module with decisions at a price: its loss, and one callback.

python examples/torch_lightning.py
"""

import logging
import warnings

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import crcen
from crcen import CostRatio
from crcen.torch import ClassWeightedLoss, NaturalLogits
from crcen.torch.lightning import BalanceCallback

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="pytorch_lightning|lightning")


class Net(pl.LightningModule):
    """Two layers and the loss."""

    def __init__(self, columns: int, loss: ClassWeightedLoss) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(columns, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))
        self.loss = loss

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weighted logits."""
        return self.layers(x)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> torch.Tensor:
        """The loss of a batch."""
        return self.loss(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.005)


torch.manual_seed(0)
data = crcen.load_dataset("abalone")
order = torch.randperm(len(data.y))
x, y = torch.from_numpy(data.X).float()[order], torch.from_numpy(data.y)[order]
x = (x - x[:3000].mean(0)) / x[:3000].std(0)

price = CostRatio(15)  # a miss is worth 15 false alarms
net = Net(x.shape[1], ClassWeightedLoss(price, counts=torch.bincount(y[:3000])))
balance = BalanceCallback()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = pl.Trainer(max_epochs=4, accelerator="cpu", devices=1, callbacks=[balance], **quiet)
trainer.fit(net, DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=64, shuffle=True))
print("key equation of the training rows, solved for:")
print(f"  left side {balance.key_equation_.lhs:.4f}, right side {balance.key_equation_.rhs:.4f}")

natural = NaturalLogits(net, net.loss).eval()
with torch.no_grad():
    p = torch.sigmoid(natural(x[3000:])[:, 0])
counts = crcen.confusion_counts(y[3000:].numpy(), crcen.decide(p, price))
print(f"on {len(p)} new rows: caught {counts.tp:.0f}, missed {counts.fn:.0f}, false alarms {counts.fp:.0f}")
print(f"mean probability {p.mean():.3f}, share of positives {y[3000:].double().mean():.3f}")
