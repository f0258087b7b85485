"""Time of a committee compared with networks alone: 30 numeric columns, 5 % positives.

    python -m bench.speed.committee_time [--rows 1000 20000 100000] [--cores 2] [--devices cpu]

Prints seconds of both, and seconds and out-of-fold log loss of each member.
"""

import argparse
import time
import warnings

from sklearn.datasets import make_classification

from crcen import CommitteeClassifier, CRCENClassifier
from crcen.commands.fit import unfitted_learner


def main():
    """Fit both on each device, print seconds and the leaderboard."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 20_000, 100_000])
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--devices", nargs="+", default=["cpu"])
    options = parser.parse_args()
    torch.set_num_threads(options.cores)
    warnings.simplefilter("ignore")
    for device in options.devices:
        CRCENClassifier(None, max_epochs=2, device=device).fit(*make_classification(500, random_state=0))  # loads torch
        for n in options.rows:
            X, y = make_classification(n, 30, n_informative=12, weights=[0.95], random_state=0)
            models = {
                "committee": CommitteeClassifier(n_jobs=options.cores, random_state=0, device=device),
                "networks as the command": unfitted_learner("networks", None, None, n).set_params(
                    random_state=0, device=device
                ),
            }
            for name, model in models.items():
                start = time.perf_counter()
                model.fit(X, y)
                seconds = time.perf_counter() - start
                board = getattr(model, "leaderboard_", [])
                more = "; ".join(f"{one.name} {one.seconds:.1f} s, log loss {one.log_loss:.5f}" for one in board)
                print(f"{device}, {n:,} rows: {name} {seconds:.1f} s {more}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
