"""The same law for K classes: weights, flows, balance, costs. Two classes are the binary theory, number for number."""
