"""What a fit to files says about its rows and their price, for two classes and for more."""

from typing import Any

import numpy as np

__all__ = ["of_several_classes", "price_lines", "price_values", "row_line"]

_SHOWN = 12


def of_several_classes(model: Any) -> bool:
    """Whether a fitted model tells more than two classes apart, or decides by costs of several actions."""
    return model.weighting_.positive is None


def row_line(model: Any, target: str) -> str:
    """How many rows there were, and of which classes."""
    weighting = model.weighting_
    if not of_several_classes(model):
        return (
            f"{weighting.n_pos + weighting.n_neg:,.0f} rows, {weighting.n_pos:,.0f} with {target} = "
            f"{model.pos_label_} ({weighting.imbalance_ratio:.3g} negatives per positive)"
        )
    counts, labels = weighting.counts, model.classes_.tolist()
    order = np.argsort(-counts, kind="stable")
    shown = ", ".join(f"{labels[k]} {counts[k]:,.6g}" for k in order[:_SHOWN])
    more = f" and {len(order) - _SHOWN} more" if len(order) > _SHOWN else ""
    return f"{counts.sum():,.0f} rows, {len(labels)} classes of {target}: {shown}{more}"


def price_lines(model: Any) -> list[str]:
    """What decisions are made by."""
    if not of_several_classes(model):
        return [f"Price     a miss is worth {model.weighting_.cost_ratio:.6g} false alarms"]
    if model.costs_ is not None:
        return ["Costs     of every decision for every truth", *(f"  {line}" for line in str(model.costs_).split("\n"))]
    pairs = zip(model.classes_.tolist(), model.weighting_.weights.tolist(), strict=True)
    return [f"Weights   {', '.join(f'{label} {weight:.4g}' for label, weight in pairs)}"]


def price_values(model: Any) -> dict[str, Any]:
    """The same as plain values, ready for JSON."""
    weighting = model.weighting_
    if not of_several_classes(model):
        return {
            "positive": model.pos_label_.item() if hasattr(model.pos_label_, "item") else model.pos_label_,
            "rows": {"positive": weighting.n_pos, "negative": weighting.n_neg},
            "weighting": {"lam": weighting.lam, "alpha": weighting.alpha, "cost_ratio": weighting.cost_ratio},
        }
    return {
        "classes": model.classes_.tolist(),
        "rows": {"all": float(weighting.counts.sum()), "by_class": weighting.counts.tolist()},
        "class_weights": None if model.costs_ is not None else weighting.weights.tolist(),
    }
