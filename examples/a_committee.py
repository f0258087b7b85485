"""A committee of networks and boosted trees: the weight of each member, and the cost of decisions on new rows.

python examples/a_committee.py
"""

from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

import crcen
from crcen import Budget, CommitteeClassifier

X, y = make_classification(1000, 8, n_informative=5, weights=[0.9], flip_y=0.05, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

committee = CommitteeClassifier(Budget(10), cv=3, time_limit=2, random_state=0).fit(X_train, y_train)
print("member               weight   log loss  average precision   ROC AUC       time    (out of fold)")
print(*committee.leaderboard_, sep="\n")

counts = crcen.confusion_counts(y_test, committee.predict(X_test))
equation = crcen.key_equation(y_test, committee.weighted_proba(X_test)[:, 1], committee.weighting_)
print()
print(f"on {len(y_test)} new rows: caught {counts.tp:.0f}, missed {counts.fn:.0f}, false alarms {counts.fp:.0f}")
print(f"key equation there: left side {equation.lhs:.2f}, right side {equation.rhs:.2f}")
