"""Watch a model's residual over time."""
