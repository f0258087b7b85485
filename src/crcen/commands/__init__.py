"""One module for each command: inputs are checked (`Judging.of`), rows scored, and a `Result` gives text and JSON."""
