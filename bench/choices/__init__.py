"""Comparisons of defaults, committee members, losses and ways of training on new rows."""
