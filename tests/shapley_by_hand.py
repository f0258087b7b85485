"""Shapley values by their definition, for tests."""

from itertools import combinations
from math import factorial

import numpy as np


def brute_force(logits, rows, background, blocks):
    """Shapley values by their definition: every coalition of columns, every background row."""
    worth = {}
    for size in range(len(blocks) + 1):
        for coalition in combinations(range(len(blocks)), size):
            mixed = np.repeat(background[:, None], len(rows), axis=1)
            for j in coalition:
                mixed[:, :, blocks[j]] = rows[None][:, :, blocks[j]]
            flat = logits(mixed.reshape(-1, rows.shape[1]))
            worth[coalition] = flat.reshape(len(background), len(rows)).mean(axis=0)
    found = np.zeros((len(rows), len(blocks)))
    for j in range(len(blocks)):
        for coalition, value in worth.items():
            if j not in coalition:
                weight = factorial(len(coalition)) * factorial(len(blocks) - len(coalition) - 1)
                gain = worth[tuple(sorted((*coalition, j)))] - value
                found[:, j] += weight / factorial(len(blocks)) * gain
    return found
