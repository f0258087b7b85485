"""Tables whose target has more than two values, or whose decisions have costs of their own."""
