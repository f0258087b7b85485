"""Load every file of a folder under limits of memory and time, and say what came of each: for `test_hostile_files`."""

import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import pandas as pd

from crcen import CrcenError, load, model_info

MEMORY, SECONDS = 400 << 20, 5


def used():
    """Address space of this process."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def outcome(path, rows, read):
    """What reading a file and using the model came to."""
    start = time.monotonic()
    try:
        found = read(path)
        if read is load:
            names = [name for name in getattr(found, "feature_names_in_", rows.columns) if name in rows.columns]
            found.predict_proba(rows[names])
        else:
            assert all(letter.isprintable() or letter == "\n" for letter in str(found))
        said = "fine"
    except CrcenError as error:
        sentence = str(error)
        said = f"refused: {sentence}" if sentence.isprintable() and len(sentence) < 700 else f"no sentence: {sentence}"
    except BaseException:
        said = traceback.format_exc()
    return said, time.monotonic() - start


def main(folder):
    """Print one line of JSON a file: name, what came of loading it, of looking at its header, and the seconds."""
    warnings.simplefilter("ignore")
    rows = pd.read_csv(folder / "rows.csv")
    outcome(folder / "whole.crcen", rows, load)  # imports what loading needs
    resource.setrlimit(resource.RLIMIT_AS, (used() + MEMORY,) * 2)

    def late(number, frame):
        raise TimeoutError("too long")

    signal.signal(signal.SIGALRM, late)
    for path in sorted(folder.glob("*.crcen")):
        signal.alarm(SECONDS)
        said, seconds = outcome(path, rows, load)
        about, _ = outcome(path, rows, model_info)
        signal.alarm(0)
        print(json.dumps([path.name, said, about, seconds]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
