"""Boosted trees as plain arrays, and their search on the folds of a committee."""
