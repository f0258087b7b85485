"""One module for each command: inputs are checked (`Judging.of`), rows scored, and a `Result` gives text and JSON."""

from crcen._support.lazy import import_with_lazy

import_with_lazy("sklearn.base")  # without scipy.stats, which takes long and few commands need
