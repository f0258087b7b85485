"""Write docs/tutorial.ipynb: the cells below, executed from top to bottom, with their outputs.

    python scripts/make_tutorial.py

No notebook software is needed. `tests/test_docs.py` runs the same cells.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "tutorial.ipynb"

CELLS = [
    """# Rare events, from a table to decisions

You have a table, a column that marks the rare rows, and an idea of what one miss is worth in false alarms. This
notebook shows how to get decisions from it and how to monitor them.""",
    """>>>
import matplotlib.pyplot as plt
import pandas as pd

import crcen
from crcen import Budget

data = crcen.load_dataset("abalone")  # bundled: shells with seven rings are the rare class
table = pd.DataFrame(data.X, columns=list(data.feature_names)).assign(seven_rings=data.y)
table.to_csv("shells.csv", index=False)""",
    "## Inspect the table\n\nThe content of each column, missing cells, and columns that may leak the outcome.",
    '>>>\ncrcen.inspect_table("shells.csv", target="seven_rings")',
    "## Split and fit\n\n`Budget(10)`: one more catch may cost up to ten false alarms.",
    """>>>
crcen.split_table("shells.csv", target="seven_rings", random_state=0)""",
    """>>>
quick = crcen.CRCENClassifierCV(hidden=(16,), l2=1e-2, encoding="standard", n_members=1, max_epochs=8)
fit = crcen.fit_table("shells_train.csv", target="seven_rings", weighting=Budget(10), estimator=quick)
fit""",
    "## Evaluate on unseen rows",
    '>>>\ncrcen.evaluate_table(fit.model, "shells_test.csv", n_resamples=200)',
    """The key equation on new rows tests whether the decisions follow the price. The expense is the number of false
alarms per extra catch. If the probabilities are right, it lies in its bracket.""",
    """>>>
test = pd.read_csv("shells_test.csv")
p = fit.model.predict_proba(test)[:, 1]
prices = [Budget(price) for price in (1, 2, 4, 8, 16, 32)]
curve = crcen.ExpenseCurve.from_predictions(test.seven_rings, p, prices, random_state=0)
curve.plot()
plt.show()""",
    "## Predict decisions with reasons",
    """>>>
scored = crcen.predict_table(fit.model, "shells_test.csv", reasons=3)
scored.frame[scored.frame.reason_1 != ""].head()""",
    ">>>\nscored",
    ">>>\nfit.model.reasons(test.iloc[p.argsort()[-5:]])  # the five riskiest rows",
    "## Compare groups at one price",
    """>>>
size = pd.qcut(test.whole_weight, 3, labels=["small", "middle", "large"])
crcen.evaluate_table(fit.model, test.assign(size=size), groups="size", n_resamples=0)""",
    "## Monitor with or without labels",
    """>>>
for week in range(1, 4):
    rows = test.iloc[week::4]
    watch = crcen.monitor_table(fit.model, rows, state="watch.json", when=f"week {week}")
watch""",
    """>>>
broken = test.iloc[0::4].drop(columns="seven_rings")
broken.iloc[:, 3] *= 1000  # somebody changed a unit
crcen.monitor_table(fit.model, broken, state="watch.json", when="week 4")""",
    "## Write a report",
    '>>>\nreport = crcen.report_table(fit.model, "shells_test.csv", out="report.html")\nreport.findings',
    """The page (`report.html`) has a slider for the price. `report` at the end of a cell shows it in the notebook.
The same steps on the command line:

```sh
crcen look shells.csv --target seven_rings
crcen fit shells_train.csv --target seven_rings --budget 10 --out model.crcen
crcen predict model.crcen new.csv --out scored.csv --reasons 3
crcen monitor model.crcen today.csv --state watch.json
```""",
]


def outputs_of(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell and return its printed text, its figures and its last value."""
    import matplotlib.pyplot as plt

    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "tutorial", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "tutorial", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    for number in plt.get_fignums():
        drawn = io.BytesIO()
        plt.figure(number).savefig(drawn, format="png", dpi=80, bbox_inches="tight", metadata={"Software": None})
        picture = {"image/png": base64.b64encode(drawn.getvalue()).decode() + "\n", "text/plain": ["<Figure>"]}
        found.append({"output_type": "display_data", "metadata": {}, "data": picture})
    plt.close("all")
    if value is not None:
        shown = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_") and value._repr_html_():
            shown["text/html"] = _lines(value._repr_html_())
        found.append({"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": shown})
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> int:
    """Run and write."""
    import matplotlib

    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    cells = []
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number, source in enumerate(CELLS):
                is_code = source.startswith(">>>\n")
                text = source.removeprefix(">>>\n")
                cell: dict[str, Any] = {"id": f"cell-{number:02d}", "metadata": {}, "source": _lines(text)}
                if is_code:
                    cell |= {"cell_type": "code", "execution_count": None, "outputs": outputs_of(text, names)}
                else:
                    cell |= {"cell_type": "markdown"}
                cells.append(cell)
        finally:
            os.chdir(here)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    TARGET.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {TARGET.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
