"""The report of several classes: its numbers, its checks, one class against the rest."""
