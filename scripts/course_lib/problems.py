"""What a table of a program is about: the kind of work and its shape, out of the table's text.

The programs write the text ("NN   M=2^12 N=2^12 K=2^12 float32"); scripts/bench_torch.py,
bench_jax.py and bench_numpy.py read it here and do the same work at the same shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

ACTIVATIONS = ("relu", "sigmoid", "tanh", "gelu_erf", "gelu_tanh", "softplus")


@dataclass(frozen=True)
class Problem:
    program: str
    kind: str  # what the benchmarks of the peers call the work: "gemm", "conv2d"
    values: dict = field(default_factory=dict)  # its shape: whole numbers, and words such as "NN"


_NUMBER = r"(?:2\^\d+|\d+)"
_ACTIVATION = "(?P<activation>" + "|".join(ACTIVATIONS) + ")"
_MATRIX = r"(?P<rows>#)x(?P<cols>#)"
_LAYER = r"batch (?P<batch>#), (?P<inputs>#) -> (?P<outputs>#)"
_CONVOLUTION = (r"\((?P<N>#),(?P<C>#),(?P<H>#),(?P<W>#)\) -> (?P<K>#) filters (?P<R>#)x(?P<S>#), "
                r"stride (?P<stride_h>#)x(?P<stride_w>#), padding (?P<pad_h>#)x(?P<pad_w>#)")
_ATTENTION = (r"B=(?P<B>#) H=(?P<H>#) T=(?P<T>#) D=(?P<D>#)(?:, (?P<queries>#) quer(?:y|ies))?, "
              r"(?P<mask>causal|full) (?P<precision>float32|bf16)")
_TRAINED = r"(?P<optimizer>sgd|momentum|adamw?) lr=(?P<learning_rate>[\d.e+-]+)"
_ON_DIGITS = (r"   (?P<data>.+) \((?P<images>#) images\)   " + _TRAINED +
              r" batch=(?P<batch>#) epochs=(?P<epochs>#)")
_TOY = ("train_toy", r"(?P<data>xor|blobs|spiral)   points=(?P<points>#) network=(?P<network>[\d-]+) "
                     + _TRAINED + r" epochs=(?P<epochs>#)")
_DIGITS_BY_LAYERS = ("train_digits", r"(?P<network>\d+(?:-\d+)+)" + _ON_DIGITS)
_DIGITS_BY_CNN = ("train_digits", r"(?P<network>8C3-P2-16C3-P2-(?P<hidden>#)-10)" + _ON_DIGITS +
                  r"(?:   until (?P<until>#)% of the tests)?")
_TEXT = ("train_text", r"layers=(?P<layers>#) heads=(?P<heads>#) width=(?P<width>#) "
                       r"context=(?P<context>#) batch=(?P<batch>#) \(\d+ parameters\)   (?P<data>.+)   "
                       + _TRAINED + r" steps=(?P<steps>#)")

# Each program's texts: "#" stands for a number, two spaces or more for the three of the text.
_TEXTS: dict[str, list[tuple[str, str]]] = {
    "vector_add": [("elementwise", r"c = a (?P<operation>[+*]) b   n=(?P<n>#) float32")],
    "axpy": [("scale", r"y = alpha \* x   n=(?P<n>#) float32"),
             ("axpy", r"y = alpha \* x \+ y   n=(?P<n>#) float32")],
    "dot": [("dot", r"n=(?P<n>#) float32")],
    "activations": [
        ("activation", _ACTIVATION + r" (?P<way>forward|backward)   n=(?P<n>#) float32")],
    "transpose": [("transpose", _MATRIX + " float32")],
    "gemv": [("gemv", r"y = alpha A(?P<transposed>\^T)? x   A " + _MATRIX + " float32")],
    "gemm": [("gemm", r"(?P<layout>NN|NT|TN)   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#) float32")],
    "gemm_mixed": [("gemm_mixed", r"(?P<precision>bf16|fp16|tf32)   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#)"),
                   ("gemm_mixed", r"(?P<precision>bf16) (?P<layout>NT|TN)   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#)"),
                   ("gemm", r"fp32   (?P<layout>NN|NT|TN)   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#)"),
                   ("gemm_mixed", r"(?P<precision>fp8)   NT   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#)")],
    "matrix_activations": [
        ("biased_activation", _ACTIVATION + r"\(X \+ bias\)(?P<backward> backward)?   " + _MATRIX
         + " float32")],
    "softmax": [("softmax", _MATRIX + " float32")],
    "losses": [("squared_error", r"squared error and gradient   n=(?P<n>#) float32"),
               ("cross_entropy", r"cross-entropy and gradient   " + _MATRIX + " float32")],
    "dense": [("dense", r"relu\(X W\^T \+ b\)   " + _LAYER + " float32")],
    "mlp_forward": [
        ("mlp_forward", r"batch (?P<batch>#), (?P<inputs>#) -> (?P<hidden>#) -> (?P<outputs>#) float32")],
    "dense_backward": [("dense_backward", r"grad_W, grad_b, grad_X   " + _LAYER + " float32")],
    "activation_backward": [
        ("biased_backward", _ACTIVATION + r" backward, with bias   " + _MATRIX + " float32"),
        ("softmax_backward", r"softmax backward   " + _MATRIX + " float32"),
        ("cross_entropy_backward", r"softmax \+ cross-entropy backward   " + _MATRIX + " float32")],
    "optimizers": [
        ("optimizer", r"(?P<rule>sgd|momentum|adamw?)   n=(?P<n>#) tensors=(?P<tensors>#) float32")],
    "sequential": [
        ("sequential", r"batch (?P<batch>#), (?P<inputs>#) -> (?P<hidden>#) -> (?P=hidden) -> "
                       r"(?P<outputs>#) float32")],
    "conv2d": [("conv2d", r"(?P<what>relu\(X \* W \+ b\))   " + _CONVOLUTION + " float32")],
    "conv2d_backward": [
        ("conv2d", r"(?P<what>grad_X|grad_W|grad_W, grad_b, grad_X)   " + _CONVOLUTION + " float32")],
    "maxpool": [
        ("maxpool", r"(?P<R>#)x(?P<S>#) every (?P<stride>#), padding (?P<padding>#), "
                    r"(?P<way>forward|backward)   (?P<N>#)x(?P<C>#)x(?P<H>#)x(?P<W>#) float32")],
    "embedding": [
        ("embedding", r"embedding(?P<backward> backward)?   B=(?P<B>#) T=(?P<T>#) C=(?P<C>#) "
                      r"V=(?P<V>#) float32")],
    "layernorm": [
        ("layernorm", r"layernorm(?P<what> of a sum)?   " + _MATRIX + " float32")],
    "layernorm_backward": [("layernorm", r"layernorm(?P<what> backward)   " + _MATRIX + " float32")],
    "attention": [
        ("attention", r"(?P<way>forward)   " + _ATTENTION)],
    "attention_backward": [("attention", r"(?P<way>backward)   " + _ATTENTION)],
    "transformer_block": [
        ("transformer_block", r"(?P<way>forward|backward)   B=(?P<B>#) T=(?P<T>#) C=(?P<C>#) "
                              r"H=(?P<H>#) (?P<precision>float32|bf16)")],
    "tensor": [
        ("view_copy", r"(?P<view>contiguous|NHWC of NCHW|\(HW,NC\) of \(NC,HW\)|\(W,H,NC\) of \(NC,H,W\)|"
                      r"expand \(N,C,1,1\)|expand \(H,W\)|every second column)   "
                      r"(?P<N>#)x(?P<C>#)x(?P<H>#)x(?P<W>#) float32"),
        ("allocations", r"(?P<steps>#) training steps: (?P<blocks>#) blocks, at most [\d.]+ MB at a time")],
    "backends": [
        ("dispatch", r"dispatch of an add   n=(?P<n>#) float32"),
        ("network", r"softmax of (?P<inputs>#)-(?P<hidden>#)-(?P<outputs>#)   batch=(?P<batch>#) float32"),
        ("gemm", r"matmul (?P<layout>NN)   M=(?P<M>#) N=(?P<N>#) K=(?P<K>#) float32"),
        ("softmax", r"softmax   " + _MATRIX + " float32"),
        ("conv2d", r"(?P<what>X \* W)   " + _CONVOLUTION + " float32")],
    "autograd": [
        ("deep_perceptron", r"gradients of a perceptron   batch=(?P<batch>#) width=(?P<width>#) "
                            r"layers=(?P<layers>#) tanh float32"),
        ("small_graph", r"(?P<what>four operations|six branches in a row) and backward   n=(?P<n>#) float32")],
    "train_toy": [_TOY],
    "train_sales": [
        ("train_sales", r"rows=(?P<rows>#) batch=(?P<batch>#) epochs=(?P<epochs>#) "
                        r"(?P<optimizer>sgd|momentum|adamw?) float32")],
    "train_mnist": [_DIGITS_BY_LAYERS],
    "train_cnn": [_DIGITS_BY_CNN],
    "train_shakespeare": [_TEXT],
    "modules": [_DIGITS_BY_LAYERS, _DIGITS_BY_CNN, _TEXT],
    "capture": [_DIGITS_BY_LAYERS, _DIGITS_BY_CNN, _TEXT, _TOY,
                ("memory_plan", r"memory of (?P<steps>#) steps?   (?P<model>\w+)")],
    "fusion": [
        ("chain", r"gelu\(\(y z \+ y\) / 2\) z \+ y   n=(?P<n>#) float32"),
        ("deviation", r"mean of \(x - m\)\^2 over each row   " + _MATRIX + " float32"),
        ("gelu_gradient", r"gelu backward and its sum over the rows   " + _MATRIX + " float32"),
        _TEXT],
}
_PATTERNS = {program: [(kind, re.compile(text.replace("#", _NUMBER))) for kind, text in texts]
             for program, texts in _TEXTS.items()}


def _value(text: str | None) -> int | str:
    if text is None:
        return ""
    power = re.fullmatch(r"2\^(\d+)", text)
    return 2 ** int(power[1]) if power else int(text) if text.isdecimal() else text.strip()


def parse(program: str, text: str) -> Problem | None:
    """The work of a program's table; None where the text is of no kind that the peers know."""
    for kind, pattern in _PATTERNS.get(program, ()):
        match = pattern.fullmatch(text)
        if match:
            return Problem(program, kind,
                           {name: _value(value) for name, value in match.groupdict().items()})
    return None
