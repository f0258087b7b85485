"""Transformers' Trainer with decisions at a price: a small BERT reads each row of a table as words.

python examples/torch_transformers.py
"""

import os
import tempfile

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

import crcen
from crcen import CostRatio
from crcen.torch import ClassWeightedLoss, NaturalLogits
from crcen.torch.transformers import BalanceCallback

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded here
set_seed(0)
data = crcen.load_dataset("abalone")
order = np.random.default_rng(0).permutation(len(data.y))[:1600]
X, y = data.X[order], data.y[order]

# A word for each column and eighth of its values.
edges = [np.quantile(X[:1200, j], np.linspace(0, 1, 9)[1:-1]) for j in range(X.shape[1])]
words = np.stack([1 + 8 * j + np.searchsorted(edges[j], X[:, j]) for j in range(X.shape[1])], 1)
rows = [{"input_ids": torch.tensor(w), "labels": torch.tensor(int(k))} for w, k in zip(words, y, strict=True)]

config = BertConfig(
    vocab_size=1 + 8 * X.shape[1],
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=X.shape[1],
    num_labels=2,
)
price = CostRatio(15)  # a miss is worth 15 false alarms
model = BertForSequenceClassification(config)
loss = ClassWeightedLoss(price, counts=np.bincount(y[:1200]))
balance = BalanceCallback(loss)
with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        folder,
        num_train_epochs=2,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        learning_rate=2e-3,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model, settings, train_dataset=rows[:1200], compute_loss_func=loss, callbacks=[balance])
    trainer.train()
print("key equation of the training rows, solved for:")
print(f"  left side {balance.key_equation_.lhs:.4f}, right side {balance.key_equation_.rhs:.4f}")

natural = NaturalLogits(model, loss).eval()
with torch.no_grad():
    p = torch.softmax(natural(input_ids=torch.tensor(words[1200:])), 1)[:, 1]
counts = crcen.confusion_counts(y[1200:], crcen.decide(p, price))
print(f"on {len(p)} new rows: caught {counts.tp:.0f}, missed {counts.fn:.0f}, false alarms {counts.fp:.0f}")
print(f"mean probability {p.mean():.3f}, share of positives {y[1200:].mean():.3f}")
