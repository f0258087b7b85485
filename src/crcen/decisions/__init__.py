"""Decisions at a stated price, for any classifier: budgets, costs, expense curves, correction and monitor."""
