"""The command line: each command parses, calls one public function, prints. One module a family of commands."""

# The order of `crcen --help`: what most people came for first.
from crcen.cli import tables

# isort: split
from crcen.cli import predict

# isort: split
from crcen.cli import judging

# isort: split
from crcen.cli import monitor

# isort: split
from crcen.cli import evidence

# isort: split
from crcen.cli import serve

# isort: split
from crcen.cli import info, listings, reproduction

# isort: split
from crcen.cli.app import app
from crcen.cli.app import run as main

__all__ = [
    "app",
    "evidence",
    "info",
    "judging",
    "listings",
    "main",
    "monitor",
    "predict",
    "reproduction",
    "serve",
    "tables",
]
