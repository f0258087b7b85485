"""Fits and answers of models that tell K classes apart."""
