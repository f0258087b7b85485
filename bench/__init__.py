"""Measurements outside the package: speed, validity, choices, and rivals (the benchmark against other libraries)."""
