"""What every layer needs and none of them is about."""
