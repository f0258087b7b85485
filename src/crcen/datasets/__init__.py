"""Rows from somewhere, as a Dataset."""

from crcen.datasets.benchmark import DatasetListing, list_datasets, load_dataset
from crcen.datasets.catalog import CatalogEntry, catalog, find
from crcen.datasets.dataset import Dataset
from crcen.datasets.simulated import (
    make_sim1,
    make_sim2,
    sim1_log_ratio,
    sim1_posterior,
    sim2_log_ratio,
    sim2_posterior,
)

__all__ = [
    "CatalogEntry",
    "Dataset",
    "DatasetListing",
    "catalog",
    "find",
    "list_datasets",
    "load_dataset",
    "make_sim1",
    "make_sim2",
    "sim1_log_ratio",
    "sim1_posterior",
    "sim2_log_ratio",
    "sim2_posterior",
]
