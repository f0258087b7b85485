"""Hypothesis without a deadline: a slow shared machine is not a failing test."""

from hypothesis import settings

settings.register_profile("crcen-theory", deadline=None)
settings.load_profile("crcen-theory")
