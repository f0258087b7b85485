"""Errors in the words of the command: its options, where the library speaks of parameters."""

import re

__all__ = ["in_options"]

# Parameters of the library's functions, and the options that set them.
_OPTIONS = {
    "target": "--target",
    "positive": "--positive",
    "drop": "--drop",
    "keep": "--keep",
    "categorical": "--category",
    "clusters": "--clusters",
    "groups": "--groups",
    "time": "--time",
    "time_limit": "--time-limit",
    "learner": "--learner",
    "out": "--out",
    "id": "--id",
    "reasons": "--reasons",
    "error_rate": "--error-rate",
    "delay": "--delay",
    "cohort": "--cohort",
    "now": "--now",
    "state": "--state",
    "page": "--page",
    "background": "--background",
    "held_out": "--held-out",
    "review": "--review",
    "cost_column": "--cost-column",
    "alarm_cost": "--alarm-cost",
    "prevalence": "--prevalence",
    "weight": "--weight",
    "weighting": "--weighting",
    "costs": "--costs",
    "fail_on": "--fail-on",
    "min_recall": "--min-recall",
    "min_precision": "--min-precision",
    "report": "--report",
    "all_columns": "--all-columns",
    "sort": "--sort",
    "title": "--title",
    "folder": "--folder",
    "test": "--test",
    "epochs": "--epochs",
    "workers": "--workers",
    "num_workers": "--workers",
    "storage": "--storage",
    "n_resamples": "--resamples",
    "random_state": "--seed",
    "data_home": "--data-home",
    "append": "--append",
    "query": "--query",
    "table": "--table",
    "sheet": "--sheet",
    "skip_rows": "--skip-rows",
    "separator": "--separator",
    "encoding": "--encoding",
    "decimal": "--decimal",
    "quote": "--quote",
    "missing": "--missing",
    "dates": "--dates",
    "rename_duplicates": "--rename-duplicates",
}
_NAMES = "|".join(sorted(_OPTIONS, key=len, reverse=True))
_PRICES = {"Alpha": "--alpha", "CostRatio": "--cost-ratio", "Budget": "--budget", "Lam": "--lam"}
# Hints that the command has no option for, and what to do instead.
_HINTS = [
    (r'did you mean None \(λ = ½\) or "balanced" \(Alpha\(1\)\)\?', "did you mean --lam 0.5 or --balanced?"),
    (r"did you mean None, plain cross entropy, which is λ = ½\?", "did you mean --lam 0.5?"),
    (r"^λ must", "--lam must"),
    (r"(; |, or )(set )?Inputs\(standardize=True\)( helps)?", "; look for extreme numbers in the table"),
    (r"^cv=.* cannot split these rows", "these rows cannot be split for validation"),
    (r"check scoring, or lower learning_rate", "look for extreme numbers in the table"),
    (r"(; )?(choose columns with )?features=\[…\]( chooses columns)?", "; --drop leaves columns out"),
    (r"rename_duplicates=True", "--rename-duplicates"),
    (r"keep= uses a column that was left out", "--keep uses a column that was left out"),
]
# Wishes as the library writes them, the longest first.
_WISHES = [
    (r"\bRecallAtLeast\(([^(),]*), confidence=([^()]*)\)", r"--recall \1 --confidence \2"),
    (r"\bRecallAtLeast\(([^()]*)\)", r"--recall \1"),
    (r"\bPrecisionAtLeast\(([^()]*)\)", r"--precision \1"),
    (r"\bCapacity\((\d+), per='?(\w+)'?\)", r"--capacity \1/\2"),
    (r"\bCapacity\((\d+)\)", r"--capacity \1"),
    (r"^Capacity must", "--capacity must"),
    (r"^per of Capacity must", "what stands behind / in --capacity must"),
    (r"^confidence of RecallAtLeast must", "--confidence must"),
    (r"^RecallAtLeast must", "--recall must"),
    (r"^PrecisionAtLeast must", "--precision must"),
    (r"^(low|high) of Review must", r"the \1 price of --review must"),
    (r"\bReview\(([^(),]*), ([^()]*)\)", r"--review \1,\2"),
]


def in_options(sentence: str) -> str:
    """A sentence of the library, as a person at the command line would say it."""
    for pattern, said in _HINTS:
        sentence = re.sub(pattern, said, sentence)
    prices = "|".join(_PRICES)
    sentence = re.sub(rf"^({prices})(?= must\b)", lambda found: _PRICES[found[1]], sentence)
    sentence = re.sub(rf"\b({prices})\(([^()]*)\)", lambda found: f"{_PRICES[found[1]]} {found[2]}", sentence)
    for pattern, said in _WISHES:
        sentence = re.sub(pattern, said, sentence)
    sentence = re.sub(rf"^({_NAMES})(?= (must|names|leaves|and|is|has)\b)", lambda found: _OPTIONS[found[1]], sentence)

    # Not in paths: folders of Parquet are often called time=2024.
    def option(found: re.Match[str]) -> str:
        value = (found[2] or "").strip("'\"")
        return f"{_OPTIONS[found[1]]} {value}".rstrip()

    return re.sub(rf"(?<![\w/\\.-])({_NAMES})=('[^']*'|\"[^\"]*\"|[\w./-]*\w)?", option, sentence)
