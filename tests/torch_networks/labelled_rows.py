"""Rows of classes that are the rarer the larger their number; the class raises all values of a row."""

import torch


def rows(n=300, n_columns=6, n_classes=2, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    y = (torch.rand(n, generator=generator) ** 2.5 * n_classes).long()
    return (torch.randn(n, n_columns, generator=generator) + 0.8 * y[:, None]).to(dtype), y
