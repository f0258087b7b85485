"""Displays for matplotlib."""
