"""The references of gemm_mixed."""

import numpy as np

from inputs import random, wide


def round_fraction(array, bits):
    """float32 with `bits` of its 23 fraction bits left, rounded to nearest, ties to even."""
    dropped = 23 - bits
    words = array.view(np.uint32).astype(np.uint64)
    words += (1 << (dropped - 1)) - 1 + (words >> dropped & 1)
    return (words >> dropped << dropped).astype(np.uint32).view(np.float32)


def references():
    generator = np.random.default_rng(24)
    a, b = random(generator, (37, 53)), random(generator, (53, 29))
    arrays = {"a": a, "b": b}
    for name, rounded in (("fp16", lambda x: x.astype(np.float16).astype(np.float32)),
                          ("bf16", lambda x: round_fraction(x, 7)),
                          ("tf32", lambda x: round_fraction(x, 10))):
        arrays["a_" + name] = rounded(a)
        arrays["product_" + name] = np.matmul(*wide(rounded(a), rounded(b)))
    return arrays
