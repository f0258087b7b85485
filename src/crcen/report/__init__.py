"""Fitted models and results drawn: displays and pages, by duck typing."""
