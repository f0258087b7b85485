"""From a table to decisions: fit, predict, evaluate, export, as the commands do, for a notebook."""
