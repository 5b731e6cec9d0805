"""The references of embedding."""

import numpy as np

from inputs import random, wide


def references():
    """Rows of two tables, added, and gradients sent back; the tables have rows that nobody names."""
    generator = np.random.default_rng(71)
    batch, length, cols, vocabulary, longest = 3, 37, 12, 23, 40
    tokens = (generator.random((batch, length))**3 * (vocabulary - 2)).astype(np.int64)
    token_table = random(generator, (vocabulary, cols))
    position_table = random(generator, (longest, cols))
    grad_y = random(generator, (batch, length, cols))
    wide_token, wide_position, wide_grad = wide(token_table, position_table, grad_y)
    grad_token, grad_position = np.zeros_like(wide_token), np.zeros_like(wide_position)
    np.add.at(grad_token, tokens, wide_grad)
    grad_position[:length] = wide_grad.sum(axis=0)
    return {"tokens": tokens, "token_table": token_table, "position_table": position_table,
            "grad_y": grad_y, "y": wide_token[tokens] + wide_position[:length],
            "grad_token": grad_token, "grad_position": grad_position}
