"""Torch: a list of jobs in, fitted parameters out."""
