"""Benchmark and simulated data sets."""

from crcen.datasets.benchmark import Dataset as Dataset
from crcen.datasets.benchmark import DatasetListing as DatasetListing
from crcen.datasets.benchmark import list_datasets as list_datasets
from crcen.datasets.benchmark import load_dataset as load_dataset
from crcen.datasets.simulated import RareEvents as RareEvents
from crcen.datasets.simulated import make_rare_events as make_rare_events
from crcen.datasets.simulated import make_sim1 as make_sim1
from crcen.datasets.simulated import make_sim2 as make_sim2
from crcen.datasets.simulated import sim1_posterior as sim1_posterior
from crcen.datasets.simulated import sim2_posterior as sim2_posterior
