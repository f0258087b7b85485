"""Peak memory of a search compared with its limit, each in a separate process.

    python -m bench.speed.memory [--data-home DIR]

The growth of the peak resident size over that of the same process after loading the set and fitting one small network,
so that libraries and the rows themselves do not count; the bound is `memory_bytes` of `CRCENClassifierCV`.
"""

import argparse
import multiprocessing
import os
import resource

import crcen

SETS = ("us_crime", "coil_2000", "scene")
BOUNDS = (32, 64, 128, 512)
ENCODINGS = ("standard", "steps")


def peak() -> float:
    """MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(name: str, data_home: str | None, encoding: str, bound: int, out: multiprocessing.Queue) -> None:
    """Put the growth of the peak, in MiB, or that the bound was refused."""
    data = crcen.load_dataset(name, data_home)
    crcen.CRCENClassifier(hidden=(4,), max_epochs=1, encoding=encoding, device="cpu").fit(data.X, data.y)
    before = peak()
    search = crcen.CRCENClassifierCV(
        hidden=[(16,), (64,)], l2=[1e-4, 1e-3, 1e-2, 1e-1], encoding=encoding, n_members=4, device="cpu",
        max_epochs=5, search=crcen.Search(memory_bytes=bound * 2**20), random_state=0,
    )  # fmt: skip
    try:
        search.fit(data.X, data.y)
    except crcen.InvalidParameter:
        out.put("refused")
    else:
        out.put(f"{peak() - before:.0f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-home", default=os.environ.get("CRCEN_DATA_HOME") or None)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print(f"{'set':12s} {'encoding':10s} {'bound MiB':>10s} {'growth MiB':>11s}")
    for name in SETS:
        for encoding in ENCODINGS:
            for bound in BOUNDS:
                queue = context.Queue()
                child = context.Process(target=growth, args=(name, args.data_home, encoding, bound, queue))
                child.start()
                found = queue.get()
                child.join()
                print(f"{name:12s} {encoding:10s} {bound:10d} {found:>11s}", flush=True)


if __name__ == "__main__":
    main()
