"""Error rates and coverage of tests, intervals, monitors and probabilities, on simulated rows with known truth."""
