"""Time and memory of fits, searches, predictions and commands."""
