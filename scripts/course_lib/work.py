"""How much a kernel has to do at least: the bytes that it must move and the operations that it must do.

A roofline needs both. A program that knows both writes them (the keys "bytes" and "operations" of a
row); a rate gives one of them, and the other follows from the formula of the step and from the sizes
in the table's problem. An addition, a multiplication, a division, a comparison and a call of exp,
log, erf, tanh or sqrt count as one operation each; what is computed twice to save memory counts once.
How far below its roof a kernel stands does not depend on that count: both would move to the side.
"""

from __future__ import annotations

import re

# Operations for each element: of the function, and of its derivative times the gradient.
ACTIVATIONS = {"relu": (1, 1), "sigmoid": (3, 6), "tanh": (1, 4), "gelu_erf": (5, 11),
               "gelu_tanh": (9, 19), "softplus": (4, 4)}
OPTIMIZERS = {"sgd": 2, "momentum": 4, "adam": 14, "adamw": 16}  # for each parameter


def work_of(program: str, table: dict, row: dict) -> tuple[float, float] | None:
    """(bytes, operations) of a row that was timed, both above 0; None where one is not known."""
    if row.get("bytes") and row.get("operations"):
        return row["bytes"], row["operations"]
    if not row["ms"] or not row["rate"]:
        return None
    done = row["rate"] * row["ms"] / 1e3
    is_bytes = row["rate_unit"] == "B/s"
    try:
        other = (_operations if is_bytes else _bytes)(program, table["problem"])
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError):  # a problem that is worded
        return None  # otherwise, or sizes that nothing has
    if not 1e-30 <= other <= 1e30:
        return None
    return (done, other) if is_bytes else (other, done)


def _numbers(text: str) -> list[float]:
    """All numbers in a text, powers as the programs write them: 2^14x3 → 16384, 3."""
    return [float(base) ** float(power or 1)
            for base, power in re.findall(r"(\d+)(?:\^(\d+))?", text)]


def _sizes(problem: str) -> dict[str, float]:
    """The named sizes: M=2^12 N=64 → {"M": 4096, "N": 64}."""
    return {name: _numbers(value)[0] for name, value in re.findall(r"(\w+)=(\d+(?:\^\d+)?)", problem)}


def _operations(program: str, problem: str) -> float:
    """What a kernel that is held against bandwidth computes. 0: nothing, or not known here."""
    name, _, sizes = problem.partition("   ")
    shape = _numbers((sizes or name).split(" float")[0])
    word = re.match(r"\w*", name)[0]
    backward = "backward" in name
    if program in ("vector_add", "axpy", "activations"):
        each = {"c": 1, "y": 2 if "+" in name else 1}.get(word) or ACTIVATIONS[word][backward]
        return each * shape[0]
    if program == "dot":
        return 2 * _sizes(problem)["n"]
    if program == "gemv":
        return 2 * shape[0] * shape[1]
    if program == "dense":  # of one row
        return 2 * shape[0] * shape[1] * shape[2]
    if program == "optimizers":
        return OPTIMIZERS[word] * shape[0]
    if program == "embedding":  # a token's row and a position's are added, and their gradients
        size = _sizes(problem)
        return (2 if backward else 1) * size["B"] * size["T"] * size["C"]
    if program == "maxpool" and not backward:
        (rows, columns, stride), (n, c, h, w) = _numbers(name)[:3], shape
        return n * c * (h // stride) * (w // stride) * (rows * columns - 1)
    each = 0.0
    if program == "matrix_activations":  # and the bias
        each = ACTIVATIONS[word][backward] + 1
    elif program == "activation_backward" and word in ACTIVATIONS:  # and the bias' gradient
        each = ACTIVATIONS[word][1] + 1
    elif program == "activation_backward":
        each = 6 if "cross-entropy" in name else 4
    elif program == "softmax":
        each = 5
    elif program == "losses":
        each = 6 if "cross-entropy" in name else 4
    elif program in ("layernorm", "layernorm_backward"):
        each = 13 if backward else 8 if "sum" in name else 7
    return each * (shape[0] * shape[1] if len(shape) > 1 else shape[0]) if each else 0


def _bytes(program: str, problem: str) -> float:
    """What a kernel that is held against arithmetic moves: inputs once, outputs once, as float32."""
    name, _, sizes = problem.partition("   ")
    size = _sizes(problem)
    if "float32" not in problem:
        return 0
    if program == "gemm":
        return 4 * (size["M"] * size["K"] + size["K"] * size["N"] + size["M"] * size["N"])
    if program in ("attention", "attention_backward") and "query" not in problem:
        return 4 * (8 if name == "backward" else 4) * size["B"] * size["H"] * size["T"] * size["D"]
    if program in ("conv2d", "conv2d_backward"):
        n, c, h, w, filters, r, s, stride, _, pad, _ = _numbers(sizes.split(" float")[0])
        y = n * filters * ((h + 2 * pad - r) // stride + 1) * ((w + 2 * pad - s) // stride + 1)
        passes = 2 if "grad_b" in name else 1
        return 4 * ((n * c * h * w + filters * c * r * s) * passes + y)
    shape = _numbers((sizes or name).split(" float")[0])
    batch, into, *hidden = shape if len(shape) > 2 else (0, 0, 0)
    out = hidden[-1]
    if program == "dense":
        return 4 * (batch * into + out * into + batch * out + out)
    if program == "dense_backward":
        return 4 * (batch * (2 * into + out) + 2 * into * out + out)
    widths = [into, *hidden]
    weights = sum(a * b for a, b in zip(widths, widths[1:]))
    if program == "mlp_forward":
        return 4 * (batch * (into + out) + weights + sum(hidden))
    if program == "sequential":  # the first layer's weights are read once, the others' twice
        return 4 * (3 * weights - into * hidden[0] + batch * (into + 2 * out))
    return 0
