"""Which defaults and which ways of training serve new rows."""
