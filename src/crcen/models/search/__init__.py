"""Searches: settings × folds × epochs as stacks of one training."""
