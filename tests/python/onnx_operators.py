"""How ONNX's operators become calls of the course's: CONVERSIONS; no test itself.

A conversion takes a case of ONNX, runs operators of the course, and returns for each output what every
version computed, in ONNX's layout, with the result in float64 and its bound. NumPy moves numbers on the way
(transposes, reshapes, repeats, cuts), but all arithmetic on them is the operators'. What these do not compute
is Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx_cases import Case
from onnx_matrices import (
    activation, add, cast, cross_entropy, depth_and_space, gemm, layer, log_softmax, matrix_activation, multiply,
    negate, products, products_by_columns, softmax, subtract, sum_of_inputs, sum_of_squares, transpose)
from onnx_networks import (
    attention, convolution, gather, group_normalization, layer_normalization, maximum_pool, maximum_unpool,
    optimizer, transposed_convolution)
from onnx_results import Output, Run

Conversion = Callable[[Case, Run], list[Output]]
ACTIVATION: list[tuple[str, Conversion]] = [("1.4 activations", activation),
                                            ("3.1 matrix_activations", matrix_activation)]

# By ONNX's operator: the steps that compute it, and how.
CONVERSIONS: dict[str, list[tuple[str, Conversion]]] = {
    "Add": [("1.1 vector_add", add)],
    "Mul": [("1.1 vector_add", multiply)],
    "Sum": [("1.1 vector_add", sum_of_inputs)],
    "Neg": [("1.2 axpy", negate)],
    "Sub": [("1.2 axpy", subtract)],
    "ReduceSumSquare": [("1.3 dot", sum_of_squares)],
    "Relu": ACTIVATION,
    "Sigmoid": ACTIVATION,
    "Tanh": ACTIVATION,
    "Gelu": ACTIVATION,
    "Softplus": ACTIVATION,
    "Transpose": [("2.1 transpose", transpose)],
    "DepthToSpace": [("2.1 transpose", depth_and_space)],
    "SpaceToDepth": [("2.1 transpose", depth_and_space)],
    "MatMul": [("2.2 gemv", products_by_columns), ("2.3 gemm", products)],
    "Gemm": [("2.3 gemm", gemm), ("4.1 dense", layer)],
    "Cast": [("2.4 gemm_mixed", cast)],
    "CastLike": [("2.4 gemm_mixed", cast)],
    "Softmax": [("3.2 softmax", softmax)],
    "LogSoftmax": [("3.3 losses", log_softmax)],
    "SoftmaxCrossEntropyLoss": [("3.3 losses", cross_entropy)],
    "NegativeLogLikelihoodLoss": [("3.3 losses", cross_entropy)],
    "ai.onnx.preview.training.Momentum": [("5.4 optimizers", optimizer)],
    "ai.onnx.preview.training.Adam": [("5.4 optimizers", optimizer)],
    "Conv": [("6.1 conv2d", convolution)],
    "ConvTranspose": [("6.2 conv2d_backward", transposed_convolution)],
    "MaxPool": [("6.3 maxpool", maximum_pool)],
    "GlobalMaxPool": [("6.3 maxpool", maximum_pool)],
    "MaxUnpool": [("6.3 maxpool", maximum_unpool)],
    "Gather": [("7.1 embedding", gather)],
    "LayerNormalization": [("7.2 layernorm", layer_normalization)],
    "InstanceNormalization": [("7.2 layernorm", group_normalization)],
    "GroupNormalization": [("7.2 layernorm", group_normalization)],
    "Attention": [("7.4 attention", attention)],
}
