"""NumPy and SciPy only: the mathematics of the weight, the key equation, decisions and expense."""
