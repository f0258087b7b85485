"""Benchmarks outside the package: speed, validity, choices, and rivals (comparison with other libraries)."""
