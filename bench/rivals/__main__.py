"""Compare CRCEN with boosted trees, ensembles and other networks; an interrupted run resumes."""

import argparse
import sys

from bench.rivals.classes.run import benchmark_classes
from bench.rivals.run import benchmark
from crcen.exceptions import CrcenError, InvalidParameter


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m bench.rivals", description=__doc__)
    parser.add_argument("--peers", default="core", help="core, all, or names with commas")
    parser.add_argument("--sets", default="", help="names with commas; default all of the half")
    parser.add_argument("--half", default="all", help="development, confirmation or all")
    parser.add_argument("--kind", choices=["binary", "multiclass"], default="binary")
    parser.add_argument("--splits", type=int)
    parser.add_argument("--settings", type=int)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--data-home")
    parser.add_argument("--out")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--redo", default="")
    parser.add_argument("--rows-from", action="append", default=[])
    parser.add_argument("--tables-only", action="store_true")
    options = vars(parser.parse_args())
    options["sets"] = [name for name in options["sets"].split(",") if name]
    try:
        if options.pop("kind") == "multiclass":
            binary = (options.pop("half") != "all", options.pop("redo"), options.pop("rows_from"))
            if any(binary):
                raise InvalidParameter("--half, --redo and --rows-from are for --kind binary.")
            done = benchmark_classes(**options)
        else:
            done = benchmark(**options)
    except KeyboardInterrupt:
        sys.stderr.write("crcen: interrupted; run the same command again to resume.\n")
        return 130
    except (CrcenError, OSError) as error:
        sys.stderr.write(f"crcen: {' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write("\n".join([*done.texts, f"Written to {done.folder}\n"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
