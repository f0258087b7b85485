"""The benchmark for more than two classes."""
