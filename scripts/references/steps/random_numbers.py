"""The references of common/random.h."""

import numpy as np

from inputs import bell, permute, SIZE, uniform


def references():
    """The generator of common/random.h, as it is above."""
    return {"uniform": uniform(2**40 + 7, 3, SIZE), "bell": bell(2**40 + 7, 3, SIZE),
            "permutation": permute(np.arange(SIZE), SIZE, 2**40 + 7, 5).astype(np.int64)}
