"""Data larger than memory: the same model with the same promises, streamed."""
