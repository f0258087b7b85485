"""Utilities without domain knowledge: atomic files, locks, progress, text, plain values, optional packages."""
