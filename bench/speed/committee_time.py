"""What a committee takes beside networks alone: 30 numbers a row, 5 % positives, two processors.

Seconds of both, and log loss out of fold of each member.

    python -m bench.speed.committee_time 1000 20000 100000
"""

import sys
import time
import warnings

from sklearn.datasets import make_classification

from crcen import CommitteeClassifier, CRCENClassifier
from crcen.commands.fit import unfitted_learner

PROCESSORS = 2


def main():
    """Fit each, print seconds and what the leaderboard says."""
    import torch

    torch.set_num_threads(PROCESSORS)
    warnings.simplefilter("ignore")
    CRCENClassifier(None, max_epochs=2, device="cpu").fit(*make_classification(500, random_state=0))  # torch is loaded
    for n in map(int, sys.argv[1:] or ("1000", "20000", "100000")):
        X, y = make_classification(n, 30, n_informative=12, weights=[0.95], random_state=0)
        models = {
            "committee": CommitteeClassifier(n_jobs=PROCESSORS, random_state=0, device="cpu"),
            "networks as the command": unfitted_learner("networks", None, None, n).set_params(random_state=0),
        }
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - start
            board = getattr(model, "leaderboard_", [])
            more = "; ".join(f"{one.name} {one.seconds:.1f} s, log loss {one.log_loss:.5f}" for one in board)
            print(f"{n:,} rows: {name} {seconds:.1f} s {more}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
