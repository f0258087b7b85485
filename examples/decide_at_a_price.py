"""Three prices on one data set: the price changes decisions, not probabilities.

python examples/decide_at_a_price.py
"""

from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import crcen
from crcen import Budget, CRCENClassifier

data = crcen.load_dataset("abalone")
X_train, X_test, y_train, y_test = train_test_split(data.X, data.y, stratify=data.y, random_state=0)

misses, alarms, prices = [], [], (2, 5, 10, 20)
print("price  caught  missed  false alarms  log loss of p  key equation on test rows (left, right)")
for price in prices:
    clf = CRCENClassifier(Budget(price), n_members=4, random_state=0).fit(X_train, y_train)
    counts = crcen.confusion_counts(y_test, clf.predict(X_test))
    equation = crcen.key_equation(y_test, clf.weighted_proba(X_test)[:, 1], clf.weighting_)
    misses.append(counts.fn)
    alarms.append(counts.fp)
    print(
        f"{price:5d}  {counts.tp:6.0f}  {counts.fn:6.0f}  {counts.fp:12.0f}  "
        f"{log_loss(y_test, clf.predict_proba(X_test)):13.4f}  {equation.lhs:.2f}, {equation.rhs:.2f}"
    )

print()
print("What one more catch cost between two prices, and the bracket in which right probabilities put it:")
print(crcen.expense_table([Budget(price) for price in prices], misses, alarms))
