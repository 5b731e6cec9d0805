"""Pieces of work that read the same in every library: for torch_cases.py and jax_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def perceptron_inputs(random: Callable[..., Any], batch: int, width: int, layers: int) -> list:
    """x (batch, width), then of each layer its weights (width, width) and its bias (width)."""
    scale = (3 / width) ** 0.5
    arrays = [random(batch, width)]
    for _ in range(layers):
        arrays += [scale * random(width, width), 0.1 * random(width)]
    return arrays


def squared_relu(relu: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Four operations: the sum of h relu(h) with h = x w."""
    def function(x, w):
        h = x * w
        return (h * relu(h)).sum()
    return function


def branches(x: Any) -> Any:
    """Six sums of a value with itself, one after the other."""
    for _ in range(6):
        x = x + x
    return x.sum()
