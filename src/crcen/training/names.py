"""What losses and activations are called; apart from torch, so that prediction does not load it."""

__all__ = ["ACTIVATIONS", "CLASS_LOSSES", "LOSSES", "ONE_AGAINST_ALL"]

ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu")
LOSSES = ("cross_entropy", "squared_error")
# Of an output for each class alone.
ONE_AGAINST_ALL = "one_against_all"
CLASS_LOSSES = (*LOSSES, ONE_AGAINST_ALL)
