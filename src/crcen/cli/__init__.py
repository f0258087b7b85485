"""The command line: each command parses, calls one public function, prints."""

from crcen.cli import commands
from crcen.cli.app import app
from crcen.cli.app import run as main

__all__ = ["app", "commands", "main"]
