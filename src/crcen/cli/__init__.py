"""The command line: each command parses, calls one public function, prints. One module a family of commands."""

from crcen.cli import listings, reproduction  # the order of `crcen --help`
from crcen.cli.app import app
from crcen.cli.app import run as main

__all__ = ["app", "listings", "main", "reproduction"]
