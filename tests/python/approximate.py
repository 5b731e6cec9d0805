"""Numbers in float64 that carry how far a float32 computation of them may be off: a running error analysis.

An Approximate has a value and an error, arrays of one shape. What they say of the float32 number f:

    value finite, error finite    |f - value| <= error
    value NaN or infinite         f is the same (the error is 0)
    error infinite                f may be anything: it overflowed, or not; the value is 0 then

Each operation passes on what its operands are off, through its own derivative, and adds its rounding: U times
the result, and ETA where that is below the normal range. Sums are bounded in any order, products in them may
be fused or not (Jeannerod and Rump: Improved error bounds for inner products in floating-point arithmetic.
SIAM J. Matrix Anal. Appl. 34, 2013). All bounds are worst cases.
"""

from __future__ import annotations

import numpy
from differential import ETA, LARGEST, U, Want

TINY = 2.0 ** -125  # of a math library's functions below the normal range, as step 1.4 has it
QUOTIENT = 5  # roundings: 2.5 ulp is what AMD's compilers may take; elsewhere one
ROOT = 6  # likewise 3 ulp

Array = numpy.ndarray


class Approximate:
    def __init__(self, value: Array | float, error: Array | float = 0.0):
        self.value = numpy.asarray(value, numpy.float64)
        self.error = numpy.broadcast_to(numpy.asarray(error, numpy.float64), self.value.shape)

    @staticmethod
    def settled(value: Array, error: Array, unknown: Array | bool = False) -> Approximate:
        """With what is beyond float32 as an infinity, or unknown where it may be; NaN stays NaN."""
        value, error, unknown = numpy.broadcast_arrays(value, error, unknown)
        nan = numpy.isnan(value)
        finite = numpy.isfinite(value)
        size = numpy.abs(numpy.where(finite, value, 0))
        off = numpy.where(finite, error, 0)
        overflows = finite & (size - off > LARGEST * (1 + U))
        unknown = (unknown | (finite & ~overflows & ~(size + off <= LARGEST))) & ~nan
        value = numpy.where(overflows, numpy.copysign(numpy.inf, value), value)
        error = numpy.where(finite & ~overflows, error, 0.0)
        return Approximate(numpy.where(unknown, 0.0, value), numpy.where(unknown, numpy.inf, error))

    def rounded(self, times: float = 1, least: float = ETA) -> Approximate:
        """After so many roundings of a result, and what it may lose below the normal range. One rounding
        changes nothing of a number that float32 has."""
        size = numpy.where(numpy.isfinite(self.value), numpy.abs(self.value), 0)
        exact = (times == 1) & (self.error == 0) & (self.value.astype(numpy.float32) == self.value)
        error = self.error + times * U * (size + self.error) + least
        return Approximate.settled(self.value, numpy.where(exact, 0, error), self.is_unknown)

    @property
    def is_unknown(self) -> Array:
        return numpy.isposinf(self.error)

    @property
    def want(self) -> Want:
        return Want(self.value, self.error)

    def __getitem__(self, key: object) -> Approximate:
        return Approximate(self.value[key], self.error[key])

    def reshape(self, *shape: int) -> Approximate:
        return Approximate(self.value.reshape(*shape), self.error.reshape(*shape))

    def transpose(self, *axes: int) -> Approximate:
        return Approximate(self.value.transpose(*axes), self.error.transpose(*axes))

    @property
    def T(self) -> Approximate:
        """Of the last two axes."""
        return Approximate(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))

    def __neg__(self) -> Approximate:
        return Approximate(-self.value, self.error)

    def __add__(self, other: Approximate) -> Approximate:
        return _exact_sum(self, other).rounded(least=0)  # sums below the normal range are exact

    def __sub__(self, other: Approximate) -> Approximate:
        return self + -other

    def __mul__(self, other: Approximate) -> Approximate:
        """A compiler may fuse it with a sum that follows: what is beyond float32 need not become infinite."""
        found = product(self, other)
        overflowed = numpy.isinf(found.value) & numpy.isfinite(self.value) & numpy.isfinite(other.value)
        return unknown_where(overflowed, found)

    def __truediv__(self, other: Approximate) -> Approximate:
        a, b = self, other
        value = a.value / b.value
        size, least = numpy.abs(b.value), numpy.abs(b.value) - b.error
        # Through 0, or by a 0 whose sign no rule says, a quotient may be anything but what a NaN makes NaN.
        unknown = _unknown(a, b) | (numpy.isfinite(size) & (least <= 0) & ~numpy.isnan(a.value))
        divisible = numpy.isfinite(value) & numpy.isfinite(size) & (least > 0)
        value = numpy.where(unknown, 0.0, value)
        quotient = numpy.abs(numpy.where(divisible, value, 0))
        error = numpy.where(divisible, (a.error + quotient * b.error) / numpy.where(divisible, least, 1), 0)
        return Approximate.settled(value, error, unknown).rounded(QUOTIENT)

    def sum(self, axis: int = -1, keepdims: bool = False) -> Approximate:
        """In any order."""
        return _sum(self, axis, keepdims)


def _unknown(a: Approximate, b: Approximate) -> Array:
    return (a.is_unknown | b.is_unknown) & ~numpy.isnan(a.value) & ~numpy.isnan(b.value)


def _exact_sum(a: Approximate, b: Approximate) -> Approximate:
    return Approximate.settled(numpy.where(numpy.isnan(a.value) | numpy.isnan(b.value), numpy.nan,
                                           a.value + b.value), a.error + b.error, _unknown(a, b))


def exact_product(a: Approximate, b: Approximate) -> Approximate:
    """Not rounded and not yet beyond float32: part of a sum, or of an operation that rounds once."""
    value = a.value * b.value
    size_a, size_b = numpy.abs(a.value), numpy.abs(b.value)
    finite = numpy.isfinite(value) & ~a.is_unknown & ~b.is_unknown
    error = numpy.where(finite, size_a * b.error + size_b * a.error + a.error * b.error, 0)
    # An infinity times what may be 0, or of either sign, is any infinity or NaN.
    either = (numpy.isinf(size_a) & (size_b <= b.error) & (b.error > 0)) | (
        numpy.isinf(size_b) & (size_a <= a.error) & (a.error > 0))
    unknown = _unknown(a, b) | either
    return Approximate(numpy.where(unknown, 0.0, value), numpy.where(unknown, numpy.inf, error))


def is_integer(a: Approximate) -> Array:
    """Sums of integers below 2^24 are exact in any order."""
    return (a.error == 0) & (a.value == numpy.rint(a.value))


def overflows(value: Array, error: Array, less: Array) -> Array:
    """Is a sum beyond float32 in every order? Its terms of one sign, which add up to `less`, must not be."""
    return (numpy.abs(value) - error > LARGEST * (1 + U)) & (less + error <= LARGEST / 4)


def product(a: Approximate, b: Approximate) -> Approximate:
    """That is stored as it is."""
    return exact_product(a, b).rounded()


def _sum(terms: Approximate, axis: int, keepdims: bool, least: float = 0.0) -> Approximate:
    """Each term loses `least` below the normal range before it is added."""
    n = terms.value.shape[axis]
    finite = numpy.isfinite(terms.value) & ~terms.is_unknown

    def total(of: Array) -> Array:
        return of.sum(axis=axis, keepdims=keepdims)

    def has(of: Array) -> Array:
        return of.any(axis=axis, keepdims=keepdims)

    value = total(numpy.where(finite, terms.value, 0))
    error = total(numpy.where(finite, terms.error, 0))
    above, under = (total(numpy.where(finite, numpy.maximum(sign * terms.value, 0), 0)) for sign in (1, -1))
    absolute, less = above + under + error, numpy.minimum(above, under) + error
    exact = ~has(~is_integer(terms)) & (absolute < 2 ** 24)
    error = numpy.where(exact, 0, error + n * U * absolute * (1 + 2.0 ** -20) + n * least)
    up, down = has(numpy.isposinf(terms.value)), has(numpy.isneginf(terms.value))
    nan = has(numpy.isnan(terms.value)) | (up & down)
    beyond = ~(absolute + error <= LARGEST) & (~overflows(value, error, less) | up | down)
    unknown = has(terms.is_unknown) | beyond
    value = numpy.where(nan, numpy.nan, numpy.where(up, numpy.inf, numpy.where(down, -numpy.inf, value)))
    return Approximate.settled(value, error, unknown & ~nan)


def matmul(a: Approximate, b: Approximate, left_out: Array | None = None) -> Approximate:
    """a @ b. The products where left_out is true, which broadcasts to (..., rows, terms, columns), take no
    part."""
    finite = all(numpy.isfinite(x.value).all() and not x.is_unknown.any() for x in (a, b))
    if finite and left_out is None:
        size_a, size_b, n = numpy.abs(a.value), numpy.abs(b.value), a.value.shape[-1]
        value = a.value @ b.value
        error = a.error @ (size_b + b.error) + size_a @ b.error
        absolute = size_a @ size_b + error
        error = error + n * U * absolute * (1 + 2.0 ** -20) + n * ETA
        if is_integer(a).all() and is_integer(b).all():
            error = numpy.where(absolute < 2 ** 24, 0, error)
        beyond = ~(absolute + error <= LARGEST)
        if beyond.any():
            positive_a, negative_a, positive_b, negative_b = (
                numpy.maximum(sign * of.value, 0) for of in (a, b) for sign in (1, -1))
            less = numpy.minimum(positive_a @ positive_b + negative_a @ negative_b,
                                 positive_a @ negative_b + negative_a @ positive_b)
            beyond &= ~overflows(value, error, less)
        return Approximate.settled(value, error, beyond)
    products = exact_product(a[..., :, :, None], b[..., None, :, :])
    if left_out is not None:
        products = Approximate(numpy.where(left_out, 0.0, products.value),
                               numpy.where(left_out, 0.0, products.error))
    return _sum(products, -2, False, ETA)


def multiply_add(a: Approximate, b: Approximate, c: Approximate) -> Approximate:
    """a b + c, rounded once."""
    return _exact_sum_unsettled(exact_product(a, b), c).rounded()


def _exact_sum_unsettled(a: Approximate, b: Approximate) -> Approximate:
    unknown = _unknown(a, b)
    value, error = a.value + b.value, a.error + b.error
    return Approximate(numpy.where(unknown, 0.0, value), numpy.where(unknown, numpy.inf, numpy.where(
        numpy.isfinite(value), error, 0.0)))


def square_root(a: Approximate) -> Approximate:
    """|sqrt(x) - sqrt(y)| is |x - y| / (sqrt(x) + sqrt(y)), and at most sqrt(|x - y|). No x is negative."""
    value = numpy.sqrt(a.value)
    error = numpy.minimum(a.error / numpy.where(value > 0, value, 1), numpy.sqrt(a.error))
    error = numpy.where(value > 0, error, numpy.sqrt(a.error))
    error = numpy.where(numpy.isfinite(value), error, 0)
    return Approximate.settled(value, error, a.is_unknown).rounded(ROOT)


def relu(a: Approximate) -> Approximate:
    """x < 0 ? 0 : x, which keeps NaN."""
    negative = a.value < 0
    return Approximate(numpy.where(negative, 0.0, a.value), numpy.where(numpy.isinf(a.value), 0.0, a.error))


def unknown_where(mask: Array, a: Approximate) -> Approximate:
    """a, of which nothing is known where `mask` is true."""
    return Approximate(numpy.where(mask, 0.0, a.value), numpy.where(mask, numpy.inf, a.error))
