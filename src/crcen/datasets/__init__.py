"""Benchmark and simulated data sets."""

from crcen.datasets.benchmark import DatasetListing, list_datasets, load_dataset
from crcen.datasets.dataset import Dataset
from crcen.datasets.simulated import (
    RareEvents,
    make_rare_events,
    make_sim1,
    make_sim2,
    sim1_posterior,
    sim2_posterior,
)

__all__ = [
    "Dataset",
    "DatasetListing",
    "RareEvents",
    "list_datasets",
    "load_dataset",
    "make_rare_events",
    "make_sim1",
    "make_sim2",
    "sim1_posterior",
    "sim2_posterior",
]
