"""scikit-learn estimators over theory and training."""
