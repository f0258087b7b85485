"""From a CSV file to decisions and a report in Python, as with `crcen fit`, `predict`, `evaluate` and `report`.

python examples/from_a_csv.py
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import crcen
from crcen import Budget, CRCENClassifierCV


def transactions(n: int, seed: int) -> pd.DataFrame:
    """Made-up card payments: numbers with gaps, categories, a truth value, dates, and a number that leaks nothing."""
    rng = np.random.default_rng(seed)
    amount, age = np.exp(rng.normal(3, 1, n)), rng.integers(18, 90, n).astype(float)
    country, online = rng.choice(["NL", "NO", "DE"], n, p=[0.6, 0.3, 0.1]), rng.random(n) < 0.3
    logit = -5 + 0.8 * (np.log(amount) - 3) + 1.5 * online + 1.0 * (country == "DE")
    age[rng.random(n) < 0.1] = np.nan
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 365, n), unit="D")
    return pd.DataFrame(
        {
            "payment": np.arange(n),
            "amount": amount.round(2),
            "age": age,
            "country": country,
            "online": online,
            "day": day.strftime("%d/%m/%Y"),
            "fraud": np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no"),
        }
    )


with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    transactions(4000, 0).to_csv(folder / "train.csv", index=False)
    transactions(2000, 1).to_csv(folder / "test.csv", index=False)

    # A miss is worth 20 false alarms. Leave `estimator` out for the full search; this one is over in a moment.
    quick = CRCENClassifierCV(hidden=(8,), l2=1e-2, max_epochs=10)
    fit = crcen.fit_table(folder / "train.csv", target="fraud", weighting=Budget(20), estimator=quick)
    print(fit)
    crcen.save(fit.model, folder / "model.crcen")

    print("\nDecisions, then the same at half the price:")
    for price in (None, Budget(10)):
        answers = crcen.predict_table(
            folder / "model.crcen", folder / "test.csv", out=folder / "scored.csv", id="payment", weighting=price
        )
        print(answers)

    print("\nOn rows the model has not seen:")
    print(crcen.evaluate_table(folder / "model.crcen", folder / "test.csv", n_resamples=200))
    print(crcen.report_table(folder / "model.crcen", folder / "test.csv", out=folder / "report.html"))
