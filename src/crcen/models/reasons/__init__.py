"""Why a row has its probability: Shapley values of a table's columns, in natural log-odds."""
