"""The inputs of the references: seeded numbers, awkward ones, and the generator of common/random.h."""

import math

import numpy as np

SIZE = 1003  # no multiple of a block, a wave or a 128-bit load

# What a float kernel gets wrong first: both zeros, subnormals, where exp overflows (88.7) and
# underflows (-103.9) in float, where tanh and erf saturate, and what only a stable form survives.
AWKWARD = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.2e-38, -1.2e-38, 1e-8, -1e-8, 1e-4, -1e-4]
    + [sign * value
       for value in (0.5, 1, 2, 3, 4, 5, 6, 8, 9.01, 10, 13, 16.6, 20, 40, 87, 88, 88.7, 89, 100,
                     103.9, 104, 500, 1e4)
       for sign in (1, -1)],
    dtype=np.float32)


def random(generator, size=SIZE):
    """Normal numbers as float32: asymmetric, so that no swapped index can hide."""
    return generator.normal(loc=0.25, scale=1.5, size=size).astype(np.float32)


def wide(*arrays):
    return tuple(array.astype(np.float64) for array in arrays)


def philox(counter, key):
    """Philox4x32-10 of four arrays of 32-bit words (held in uint64), as common/random.h has it."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        p0, p1 = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [p1 >> 32 ^ counter[1] ^ key[0], p1 & 0xFFFFFFFF,
                   p0 >> 32 ^ counter[3] ^ key[1], p0 & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def philox_words(quads, seed, stream, purpose):
    """The four words of each quad of sequence `stream`: an array (quads, 4) of uint64."""
    quads = np.asarray(quads, dtype=np.uint64)
    counter = [quads & np.uint64(0xFFFFFFFF), quads >> np.uint64(32),
               np.full_like(quads, stream), np.full_like(quads, purpose)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    return np.stack(philox(counter, key), axis=-1)


def uniform(seed, stream, n):
    """random_numbers::uniform(seed, stream, i) for i < n: float32 in [-1, 1)."""
    words = philox_words(np.arange((n + 3) // 4), seed, stream, 0).reshape(-1)[:n]
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)


def permute(i, n, seed, stream):
    """random_numbers::permute for each element of i: a bijection of [0, n)."""
    half = 1
    while half < 31 and 1 << 2 * half < n:
        half += 1
    keys = philox_words(np.arange(2), seed, stream, 1).reshape(-1)

    def mix(x):
        x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        x = (x ^ x >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return x ^ x >> 16

    i = np.array(i, dtype=np.uint64)
    outside = np.ones(i.shape, dtype=bool)
    while outside.any():
        left, right = i[outside] >> half, i[outside] & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ mix(right ^ key) >> 32 - half
        i[outside] = left << half | right
        outside = i >= n
    return i


def bell(seed, stream, n):
    """random_numbers::bell(seed, stream, i) for i < n: float32, nearly normal."""
    words = philox_words(np.arange(n), seed, stream, 2) >> np.uint64(10)
    return np.float32(math.sqrt(3) / 2) * (words.sum(axis=1).astype(np.float32)
                                           * np.float32(2.0**-21) - np.float32(4))
