"""What losses and activations are called; apart from torch, so that prediction does not load it."""

__all__ = ["ACTIVATIONS", "LOSSES"]

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu")
LOSSES = ("cross_entropy", "squared_error")
