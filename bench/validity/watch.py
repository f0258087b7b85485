"""False alarms of monitoring without labels, and the faults that it finds.

    OMP_NUM_THREADS=1 python -m bench.validity.watch [--streams 300] [--out FILE]

All rows of mixed tables (numbers with ties and missing cells, categories with rare values, truth values, dates) come
from one distribution: a profile of the training rows is compared with new rows in several calls, with one error rate
for all columns and calls. Then a single fault is added to a call, and the share of calls that find it is counted. No
network is trained; only the columns are compared.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from crcen import TableClassifier
from crcen.tables.cells import TableCells
from crcen.tables.profile import NewRows, TrainingProfile, profile_of

RATE, CALLS = 0.05, 20
INPUT_SHARE = 0.5


def table(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of twelve columns."""
    return pd.DataFrame(
        {
            "amount": rng.lognormal(4.0, 1.2, n).round(2),
            "age": np.where(rng.random(n) < 0.03, np.nan, rng.integers(18, 90, n)),
            "visits": rng.poisson(1.5, n),
            "score": rng.normal(size=n),
            "rate": np.where(rng.random(n) < 0.3, np.nan, rng.beta(2, 5, n)),
            "region": rng.choice([f"r{i}" for i in range(12)], n, p=rng_shares()),
            "product": rng.choice(list("abc"), n, p=[0.7, 0.25, 0.05]),
            "insured": rng.choice(["yes", "no"], n, p=[0.9, 0.1]),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), "D"),
            "heavy": rng.standard_cauchy(n),
            "flag": rng.random(n) < 0.01,
            "shop": rng.zipf(1.8, n).clip(max=400).astype(str),
        }
    )


def rng_shares() -> np.ndarray:
    """Shares of regions, from a third to one in two hundred."""
    shares = 0.7 ** np.arange(12)
    return shares / shares.sum()


FAULTS = {
    "a third of ages missing": lambda t, rng: t.assign(age=t.age.where(rng.random(len(t)) > 1 / 3)),
    "amounts in cents": lambda t, rng: t.assign(amount=t.amount * 100),
    "a new product in 5 % of rows": lambda t, rng: t.assign(product=t["product"].where(rng.random(len(t)) > 0.05, "d")),
    "score moved by half a deviation": lambda t, rng: t.assign(score=t.score + 0.5),
    "insured mostly no": lambda t, rng: t.assign(insured=t.insured.map({"yes": "no", "no": "yes"})),
    "visits no longer counted": lambda t, rng: t.assign(visits=0),
}


def differences(reader: TableClassifier, profile: TrainingProfile, rows: pd.DataFrame, call: int) -> list:
    """What a call says."""
    new = NewRows(profile, reader.columns_)
    new.add(reader.encode(rows))
    return new.differences(false_alarm_rate=INPUT_SHARE * RATE / (call * (call + 1)))


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = [
        f"Streams with any false alarm of columns, {options.streams} streams of {CALLS} calls, nominal at most "
        f"{INPUT_SHARE * RATE:g}",
        f"{'training rows':>14} {'rows a call':>12} {'streams':>9}",
    ]
    found = dict.fromkeys(FAULTS, 0)
    tried = 0
    for n_train, n_new in ((500, 100), (2_000, 500), (5_000, 2_000)):
        alarms = 0
        for seed in range(options.streams):
            rng = np.random.default_rng([n_train, seed])
            training = table(n_train, rng)
            reader = TableClassifier(random_state=0).learn_columns(training)
            profile = profile_of(reader.columns_, TableCells(training), reader.encode(training), [])
            quiet = [not differences(reader, profile, table(n_new, rng), call) for call in range(1, CALLS + 1)]
            alarms += not all(quiet)
            if n_train == 2_000:
                tried += 1
                for name, fault in FAULTS.items():
                    found[name] += bool(differences(reader, profile, fault(table(n_new, rng), rng), CALLS + 1))
        lines.append(f"{n_train:>14,} {n_new:>12,} {alarms / options.streams:>9.4f}")
        print(lines[-1], flush=True)
    lines += ["", "Faults found at call 21, 2,000 training rows, 500 rows a call"]
    lines += [f"  {name:<36} {count / tried:.3f}" for name, count in found.items()]
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
