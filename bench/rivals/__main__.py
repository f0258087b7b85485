"""Compare crcen with boosted trees, ensembles and other networks; an interrupted run resumes.

python -m bench.rivals [--half development] [--peers crcen_cv,lightgbm] [--out FOLDER]
"""

import argparse
import sys

from bench.rivals.datasets import HALVES
from bench.rivals.run import benchmark
from crcen.exceptions import CrcenError


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", default="core", help="core, all (also the costly ones), or names with commas")
    parser.add_argument("--sets", default="", help="names with commas; default all of the half")
    parser.add_argument("--half", default="all", choices=[*HALVES, "all"])
    parser.add_argument("--splits", type=int, help="stratified 75/25 splits of each set; default 4")
    parser.add_argument("--settings", type=int, help="settings tried for each peer; default 16, multiclass 6")
    parser.add_argument("--jobs", type=int, help="processes; default one a processor")
    parser.add_argument("--data-home", help="folder of the data; default CRCEN_DATA_HOME")
    parser.add_argument("--out", help="run folder; default runs/ and a hash of the settings")
    parser.add_argument("--time-limit", type=float, help="processor seconds for a peer on one split; default 600, 300")
    parser.add_argument("--redo", default="", help="delete the rows of these peers first; failed: rows with an error")
    parser.add_argument("--rows-from", action="append", default=[], help="add the rows of a run with the same settings")
    parser.add_argument("--tables-only", action="store_true", help="run nothing; write the tables again")
    options = vars(parser.parse_args(arguments))
    options["sets"] = [name for name in options["sets"].split(",") if name]
    try:
        done = benchmark(**options)
    except KeyboardInterrupt:
        sys.stderr.write("bench.rivals: interrupted; the same command resumes.\n")
        return 130
    except (CrcenError, OSError) as error:
        sys.stderr.write(f"bench.rivals: {' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write("\n".join([*done.texts, f"Written to {done.folder}\n"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
