"""The command line: each command parses, calls one public function, prints. One module a family of commands."""

# The order of `crcen --help`: what most people came for first.
from crcen.cli import tables, judging, evidence, serve, reproduction  # isort: skip
from crcen.cli.app import app
from crcen.cli.app import run as main

__all__ = ["app", "evidence", "judging", "main", "reproduction", "serve", "tables"]
