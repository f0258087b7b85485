"""A fitted model as one file that cannot execute anything."""
