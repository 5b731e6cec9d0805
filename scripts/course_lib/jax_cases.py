"""What JAX does for each problem of a program: the same work, at the same shape, for bench_jax.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from jax import lax, nn

from course_lib import problems
from course_lib.jax_networks import attend, block, block_parameters, linear, mean_cross_entropy, normalized
from course_lib.peer_work import branches, perceptron_inputs, squared_relu
from course_lib.peers import CannotDo

Array = jax.Array
Function = Callable[..., object]

# Where the numbers of a type in a program's text are kept. TF32 is a way to multiply floats.
TYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16, "tf32": jnp.float32, "float32": jnp.float32,
         "fp8": jnp.float8_e4m3fn}
ACTIVATIONS: dict[str, Function] = {
    "relu": nn.relu, "sigmoid": nn.sigmoid, "tanh": jnp.tanh, "softplus": nn.softplus,
    "gelu_erf": lambda x: nn.gelu(x, approximate=False),
    "gelu_tanh": lambda x: nn.gelu(x, approximate=True)}


# ---- A piece of work ---------------------------------------------------------------------------


@dataclass
class Case:
    """A piece of work: a function of arrays, forwards, or its gradients, or both."""

    function: Function
    inputs: list[Array]
    wanted: tuple[int, ...] = ()  # the inputs whose gradients are made
    grad: Array | None = None  # of the function's result; None: the result is a number
    way: str = "forward"  # or "backward": the gradients alone; or "both"
    settle_ms: float = 20
    note: str = ""

    def _pull(self, inputs: list[Array]) -> tuple[object, Callable]:
        """The function's result, and what makes the gradients of the wanted inputs of one of it."""
        def of_wanted(*wanted: Array) -> object:
            every = list(inputs)
            for place, value in zip(self.wanted, wanted):
                every[place] = value
            return self.function(*every)
        return jax.vjp(of_wanted, *(inputs[place] for place in self.wanted))

    def call(self) -> Callable[[], object]:
        """What is timed: one compiled function. Whatever it needs of the forward pass is made now."""
        if self.way == "forward":
            compiled = jax.jit(self.function)
            return lambda: compiled(*self.inputs)
        grad = jnp.ones((), self.inputs[0].dtype) if self.grad is None else self.grad
        if self.way == "backward":
            pull = jax.jit(lambda inputs: self._pull(inputs)[1])(self.inputs)
            backward = jax.jit(lambda pull, grad: pull(grad))
            return lambda: backward(pull, grad)

        def result_and_gradients(inputs: list[Array], grad: Array) -> object:
            result, pull = self._pull(inputs)
            return result, pull(grad)
        both = jax.jit(result_and_gradients)
        return lambda: both(self.inputs, grad)

    def in_double(self) -> Case:
        """The same work on the same numbers in double precision, where JAX has it switched on."""
        def double(array: Array) -> Array:
            return array.astype(jnp.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array
        return replace(self, inputs=[double(array) for array in self.inputs],
                       grad=None if self.grad is None else double(self.grad))


def largest_difference(got: object, want: object) -> tuple[float | None, int]:
    """And how many numbers were compared. None where one of them is no number."""
    largest, compared = 0.0, 0
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        if a.size:
            largest = max(largest, float(jnp.abs(a.astype(b.dtype) - b).max()))
        compared += a.size
    return largest if math.isfinite(largest) else None, compared


# ---- The work of each step ---------------------------------------------------------------------


class Cases:
    """Makes the case of a problem: a method for each kind, whose arguments are the problem's values."""

    def __init__(self, seed: int, on_gpu: bool):
        self.key = jax.random.key(seed)
        self.on_gpu = on_gpu

    @property
    def settle_ms(self) -> float:
        """Of work on matrix units: see settle_matrix_units() in common/measure.h."""
        return 500 if self.on_gpu else 20

    def make(self, problem: problems.Problem) -> Case:
        method = getattr(self, problem.kind, None)
        if method is None:
            raise CannotDo("no JAX counterpart")
        return method(**problem.values)

    def next_key(self) -> Array:
        self.key, key = jax.random.split(self.key)
        return key

    def random(self, *shape: int, low: float = -1, high: float = 1) -> Array:
        return jax.random.uniform(self.next_key(), shape, jnp.float32, low, high)

    def weights(self, outputs: int, inputs: int) -> Array:
        return self.random(outputs, inputs) / inputs ** 0.5

    def labels(self, rows: int, classes: int) -> Array:
        return jax.random.randint(self.next_key(), (rows,), 0, classes)

    # Stage 1

    def elementwise(self, operation: str, n: int) -> Case:
        return Case(jnp.add if operation == "+" else jnp.multiply, [self.random(n), self.random(n)])

    def scale(self, n: int) -> Case:
        return Case(lambda x: -0.9990234375 * x, [self.random(n)])

    def axpy(self, n: int) -> Case:
        return Case(lambda x, y: -0.9990234375 * x + y, [self.random(n), self.random(n)],
                    note="into a new array")

    def dot(self, n: int) -> Case:
        return Case(jnp.dot, [self.random(n), self.random(n)])

    def activation(self, activation: str, way: str, n: int) -> Case:
        x = self.random(n, low=-8, high=8)
        if way == "forward":
            return Case(ACTIVATIONS[activation], [x])
        return Case(ACTIVATIONS[activation], [x], (0,), self.random(n), "backward")

    # Stage 2

    def transpose(self, rows: int, cols: int) -> Case:
        return Case(jnp.transpose, [self.random(rows, cols)])

    def gemv(self, transposed: str, rows: int, cols: int) -> Case:
        a = self.random(rows, cols)
        if transposed:
            return Case(lambda a, x: a.T @ x, [a, self.random(rows)])
        return Case(lambda a, x: a @ x, [a, self.random(cols)])

    def gemm(self, layout: str, M: int, N: int, K: int) -> Case:
        a = self.random(K, M) if layout == "TN" else self.random(M, K)
        b = self.random(N, K) if layout == "NT" else self.random(K, N)
        return Case({"NN": lambda a, b: a @ b, "NT": lambda a, b: a @ b.T, "TN": lambda a, b: a.T @ b}[layout],
                    [a, b])

    def gemm_mixed(self, precision: str, M: int, N: int, K: int, layout: str = "NN") -> Case:
        """The sums are float; what is written is of the inputs' type. B of fp8 is (N, K), as the program's."""
        case = self.gemm("NT" if precision == "fp8" else layout, M, N, K)
        function, note = case.function, f"C in {precision}"
        if precision == "tf32":
            note = ""

            def function(a, b):  # where the device has TF32, its products are of it
                return jnp.matmul(a, b, precision=lax.Precision.DEFAULT)
        if precision == "fp8":
            note = "C in float32"

            def function(a, b):
                sums = jnp.float64 if a.dtype == jnp.float64 else jnp.float32
                return lax.dot_general(a, b, (((1,), (1,)), ((), ())), preferred_element_type=sums)
        return replace(case, function=function, inputs=[x.astype(TYPES[precision]) for x in case.inputs],
                       settle_ms=self.settle_ms, note=note)

    # Stage 3

    def biased_activation(self, activation: str, backward: str, rows: int, cols: int) -> Case:
        act = ACTIVATIONS[activation]
        inputs = [self.random(rows, cols, low=-4, high=4), self.random(cols, low=-4, high=4)]
        if not backward:
            return Case(lambda x, bias: act(x + bias), inputs)
        return Case(lambda x, bias: act(x + bias), inputs, (0,), self.random(rows, cols), "backward",
                    note="what the forward pass keeps is JAX's choice")

    def softmax(self, rows: int, cols: int) -> Case:
        return Case(nn.softmax, [self.random(rows, cols, low=-8, high=8)])

    def squared_error(self, n: int) -> Case:
        return Case(lambda x, y: jnp.mean((x - y) ** 2), [self.random(n), self.random(n)], (0,), way="both")

    def cross_entropy(self, rows: int, cols: int) -> Case:
        return Case(mean_cross_entropy, [self.random(rows, cols, low=-8, high=8), self.labels(rows, cols)],
                    (0,), way="both")

    # Stage 4

    def dense(self, batch: int, inputs: int, outputs: int) -> Case:
        return Case(lambda x, w, bias: nn.relu(linear(x, w, bias)),
                    [self.random(batch, inputs), self.weights(outputs, inputs), self.random(outputs)])

    def mlp_forward(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        return Case(lambda x, w1, b1, w2, b2: linear(nn.relu(linear(x, w1, b1)), w2, b2),
                    [self.random(batch, inputs), self.weights(hidden, inputs), self.random(hidden),
                     self.weights(outputs, hidden), self.random(outputs)])

    # Stage 5

    def dense_backward(self, batch: int, inputs: int, outputs: int) -> Case:
        return Case(linear, [self.random(batch, inputs), self.weights(outputs, inputs), self.random(outputs)],
                    (0, 1, 2), self.random(batch, outputs), "backward")

    def biased_backward(self, activation: str, rows: int, cols: int) -> Case:
        act = ACTIVATIONS[activation]
        return Case(lambda x, bias: act(x + bias),
                    [self.random(rows, cols, low=-4, high=4), jnp.zeros(cols)], (0, 1),
                    self.random(rows, cols), "backward")

    def softmax_backward(self, rows: int, cols: int) -> Case:
        return Case(nn.softmax, [self.random(rows, cols, low=-4, high=4)], (0,), self.random(rows, cols),
                    "backward")

    def cross_entropy_backward(self, rows: int, cols: int) -> Case:
        return Case(mean_cross_entropy, [self.random(rows, cols), self.labels(rows, cols)], (0,),
                    way="backward")

    def sequential(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        def network(x, w1, b1, w2, b2, w3, b3):
            return linear(nn.relu(linear(nn.relu(linear(x, w1, b1)), w2, b2)), w3, b3)
        arrays = [self.random(batch, inputs)]
        for n, m in ((inputs, hidden), (hidden, hidden), (hidden, outputs)):
            arrays += [self.weights(m, n), self.random(m)]
        return Case(network, arrays, tuple(range(1, 7)), self.random(batch, outputs), "both")

    # Stage 6

    def conv2d(self, what: str, N: int, C: int, H: int, W: int, K: int, R: int, S: int,
               stride_h: int, stride_w: int, pad_h: int, pad_w: int) -> Case:
        def conv(x, w):
            return lax.conv_general_dilated(x, w, (stride_h, stride_w), ((pad_h, pad_h), (pad_w, pad_w)))

        def biased(x, w, bias):
            return conv(x, w) + bias[:, None, None]
        x, w = self.random(N, C, H, W), self.random(K, C, R, S) / (C * R * S) ** 0.5
        if what == "X * W":
            return Case(conv, [x, w])
        inputs = [x, w, self.random(K)]
        if what.startswith("relu"):
            return Case(lambda x, w, bias: nn.relu(biased(x, w, bias)), inputs)
        wanted = {"grad_X": (0,), "grad_W": (1,)}.get(what, (0, 1, 2))
        shape = N, K, (H + 2 * pad_h - R) // stride_h + 1, (W + 2 * pad_w - S) // stride_w + 1
        return Case(biased, inputs, wanted, self.random(*shape), "backward")

    def maxpool(self, R: int, S: int, stride: int, padding: int, way: str, N: int, C: int, H: int,
                W: int) -> Case:
        edges = (0, 0), (0, 0), (padding, padding), (padding, padding)

        def pool(x):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, R, S), (1, 1, stride, stride), edges)
        x = self.random(N, C, H, W)
        if way == "forward":
            return Case(pool, [x])
        return Case(pool, [x], (0,), self.random(*pool(x).shape, low=0), "backward")

    # Stage 7

    def embedding(self, backward: str, B: int, T: int, C: int, V: int) -> Case:
        # As in a text a few tokens are frequent and most are rare.
        share = jax.random.uniform(self.next_key(), (B, T)) ** 3
        tokens = jnp.minimum((share * V).astype(jnp.int32), V - 1)

        def embed(tokens, table, positions):
            return table[tokens] + positions
        inputs = [tokens, self.random(V, C), self.random(T, C)]
        if not backward:
            return Case(embed, inputs)
        return Case(embed, inputs, (1, 2), self.random(B, T, C), "backward")

    def layernorm(self, what: str, rows: int, cols: int) -> Case:
        x, gain, bias = self.random(rows, cols, low=-2.5, high=5.5), self.random(cols), self.random(cols)
        if what == "of a sum":
            def norm_of_sum(x, residual, gain, bias):
                total = x + residual
                return total, normalized(total, gain, bias)
            return Case(norm_of_sum, [x, self.random(rows, cols), gain, bias])
        if what == "backward":
            return Case(normalized, [x, gain, bias], (0, 1, 2), self.random(rows, cols), "backward")
        return Case(normalized, [x, gain, bias])

    def attention(self, way: str, B: int, H: int, T: int, D: int, queries: int | str, mask: str,
                  precision: str) -> Case:
        """JAX's own layout: (B, T, H, D)."""
        count = queries or T
        if mask == "causal" and count not in (1, T):
            raise CannotDo("JAX aligns the mask of fewer queries with the first keys")
        is_causal = mask == "causal" and count == T  # a single query sees every key
        kind, by_cudnn = TYPES[precision], self.on_gpu and precision == "bf16"
        q, k, v = (self.random(B, rows, H, D, low=-largest, high=largest).astype(kind)
                   for rows, largest in ((count, 2), (T, 2), (T, 1)))
        case = Case(lambda q, k, v: attend(q, k, v, is_causal, by_cudnn and q.dtype == kind), [q, k, v],
                    note="(B,T,H,D), " + ("cuDNN" if by_cudnn else "XLA"),
                    settle_ms=self.settle_ms if precision == "bf16" else 20)
        if way == "forward":
            return case
        return replace(case, wanted=(0, 1, 2), grad=self.random(B, count, H, D).astype(kind), way=way)

    def transformer_block(self, way: str, B: int, T: int, C: int, H: int, precision: str) -> Case:
        names, parameters = zip(*block_parameters(self.next_key(), C, 1).items())
        kind = TYPES[precision]

        def forward(x, *parameters):
            used = x.dtype if x.dtype == jnp.float64 else kind
            return block(dict(zip(names, parameters)), x, H, used, self.on_gpu and used == jnp.bfloat16)
        inputs = [self.random(B, T, C), *parameters]
        if way == "forward":
            return Case(forward, inputs)
        return Case(forward, inputs, tuple(range(len(inputs))), self.random(B, T, C), "backward")

    # Stage 8

    def view_copy(self, view: str, N: int, C: int, H: int, W: int) -> Case:
        """A view of an array, made row-major. XLA has no views: what it returns is always a new array, and
        without work it is the same one."""
        seen: Function = {
            "contiguous": lambda a: jnp.copy(a),
            "NHWC of NCHW": lambda a: a.transpose(0, 2, 3, 1),
            "(HW,NC) of (NC,HW)": lambda a: a.reshape(N * C, H * W).T,
            "(W,H,NC) of (NC,H,W)": lambda a: a.reshape(N * C, H, W).transpose(2, 1, 0),
            "expand (N,C,1,1)": lambda a: jnp.broadcast_to(a, (N, C, H, W)),
            "expand (H,W)": lambda a: jnp.broadcast_to(a, (N, C, H, W)),
            "every second column": lambda a: a[..., ::2],
        }[view]
        shape = {"expand (N,C,1,1)": (N, C, 1, 1), "expand (H,W)": (H, W)}.get(view, (N, C, H, W))
        return Case(seen, [self.random(*shape)])

    def chain(self, n: int) -> Case:
        return Case(lambda y, z: nn.gelu((y * z + y) / 2, approximate=True) * z + y,
                    [self.random(n), self.random(n)])

    def deviation(self, rows: int, cols: int) -> Case:
        return Case(lambda x, m: jnp.mean((x - m) ** 2, 1), [self.random(rows, cols), self.random(rows, 1)])

    def gelu_gradient(self, rows: int, cols: int) -> Case:
        def gradient(grad, x):
            _, pull = jax.vjp(ACTIVATIONS["gelu_tanh"], x)
            [grad_x] = pull(grad)
            return grad_x, grad_x.sum(0)
        return Case(gradient, [self.random(rows, cols), self.random(rows, cols)])

    def deep_perceptron(self, batch: int, width: int, layers: int) -> Case:
        def perceptron(x, *parameters):
            for w, bias in zip(parameters[::2], parameters[1::2]):
                x = jnp.tanh(linear(x, w, bias))
            return x
        arrays = perceptron_inputs(self.random, batch, width, layers)
        return Case(perceptron, arrays, tuple(range(len(arrays))), self.random(batch, width), "backward")

    def small_graph(self, what: str, n: int) -> Case:
        if what == "four operations":
            return Case(squared_relu(nn.relu), [self.random(n), self.random(n)], (0, 1), way="both")
        return Case(branches, [self.random(n)], (0,), way="both")
