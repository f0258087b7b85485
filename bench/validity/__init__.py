"""Whether tests, intervals, monitors and probabilities do what they state, on simulated rows with known truth."""
