"""What PyTorch does for each problem of a program: the same work, at the same shape, for bench_torch.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from course_lib import problems
from course_lib.peer_work import branches, perceptron_inputs, squared_relu
from course_lib.peers import CannotDo, first_line
from course_lib.torch_tasks import Block

Tensors = list[torch.Tensor]
Function = Callable[..., object]


# ---- A piece of work ---------------------------------------------------------------------------


@dataclass
class Case:
    """A piece of work: a function of tensors, forwards, or its gradients, or both."""

    function: Function
    inputs: Tensors
    wanted: tuple[int, ...] = ()  # the inputs whose gradients are made
    grad: torch.Tensor | None = None  # of the function's result; None: the result is a number
    way: str = "forward"  # or "backward": the gradients alone; or "both"
    compiles: bool = False  # torch.compile can gain
    settle_ms: float = 20
    tf32: bool = False
    note: str = ""

    def call(self, function: Function) -> Callable[[], object]:
        """What is timed. Whatever it needs of the forward pass is made now."""
        if self.way == "forward":
            inputs = self.inputs

            def forward() -> object:
                with torch.no_grad():
                    return function(*inputs)
            return forward
        inputs = [tensor.detach().requires_grad_(i in self.wanted)
                  for i, tensor in enumerate(self.inputs)]
        wanted = [inputs[i] for i in self.wanted]
        if self.way == "backward":
            result = function(*inputs)
            return lambda: torch.autograd.grad(result, wanted, self.grad, retain_graph=True)

        def both() -> object:
            result = function(*inputs)
            return (result.detach(), *torch.autograd.grad(result, wanted, self.grad))
        return both

    def in_double(self) -> Case:
        """The same work on the same numbers in double precision."""
        def double(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.double() if tensor.is_floating_point() else tensor
        return Case(self.function, [double(tensor) for tensor in self.inputs], self.wanted,
                    None if self.grad is None else double(self.grad), self.way)


def flat(value: object) -> Tensors:
    return [value] if isinstance(value, torch.Tensor) else [t for part in value for t in flat(part)]


def largest_difference(got: object, want: object) -> tuple[float | None, int]:
    """And how many numbers were compared. None where one of them is no number."""
    largest, compared = 0.0, 0
    for a, b in zip(flat(got), flat(want)):
        # In pieces: a double of everything at once would be the largest array of all.
        for x, y in zip(a.detach().reshape(-1).split(1 << 26), b.detach().reshape(-1).split(1 << 26)):
            difference = (x.double() - y.double()).abs().max().item() if len(x) else 0.0
            largest = max(largest, difference if math.isfinite(difference) else math.inf)
        compared += a.numel()
    return largest if math.isfinite(largest) else None, compared


# ---- The work of each step ---------------------------------------------------------------------

MASKED = {"causal": True, "full": False}
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32,
              "float32": torch.float32}
ACTIVATIONS: dict[str, Function] = {
    "relu": torch.relu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "gelu_erf": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus}


class Cases:
    """Makes the case of a problem: a method for each kind, whose arguments are the problem's values."""

    def __init__(self, device: torch.device):
        self.device = device

    @property
    def settle_ms(self) -> float:
        """Of work on matrix units: see settle_matrix_units() in common/measure.h."""
        return 500 if self.device.type == "cuda" else 20

    def make(self, problem: problems.Problem) -> Case:
        return getattr(self, problem.kind)(**problem.values)

    def random(self, *shape: int, low: float = -1, high: float = 1) -> torch.Tensor:
        return torch.empty(shape, device=self.device).uniform_(low, high)

    def weights(self, outputs: int, inputs: int) -> torch.Tensor:
        return self.random(outputs, inputs) / inputs ** 0.5

    def labels(self, rows: int, classes: int) -> torch.Tensor:
        return torch.randint(classes, (rows,), device=self.device)

    # Stage 1

    def elementwise(self, operation: str, n: int) -> Case:
        function = torch.add if operation == "+" else torch.mul
        return Case(function, [self.random(n), self.random(n)])

    def scale(self, n: int) -> Case:
        return Case(lambda x: -0.9990234375 * x, [self.random(n)])

    def axpy(self, n: int) -> Case:
        return Case(lambda x, y: torch.add(y, x, alpha=-0.9990234375), [self.random(n), self.random(n)],
                    note="into a new array")

    def dot(self, n: int) -> Case:
        return Case(torch.dot, [self.random(n), self.random(n)])

    def activation(self, activation: str, way: str, n: int) -> Case:
        x = self.random(n, low=-8, high=8)
        if way == "forward":
            return Case(ACTIVATIONS[activation], [x])
        return Case(ACTIVATIONS[activation], [x], (0,), self.random(n), "backward")

    # Stage 2

    def transpose(self, rows: int, cols: int) -> Case:
        return Case(lambda a: a.t().contiguous(), [self.random(rows, cols)])

    def gemv(self, transposed: str, rows: int, cols: int) -> Case:
        a = self.random(rows, cols)
        if transposed:
            return Case(lambda a, x: torch.mv(a.t(), x), [a, self.random(rows)])
        return Case(lambda a, x: torch.mv(a, x), [a, self.random(cols)])

    def gemm(self, layout: str, M: int, N: int, K: int) -> Case:
        a = self.random(K, M) if layout == "TN" else self.random(M, K)
        b = self.random(N, K) if layout == "NT" else self.random(K, N)
        return Case({"NN": lambda a, b: a @ b, "NT": lambda a, b: a @ b.t(),
                     "TN": lambda a, b: a.t() @ b}[layout], [a, b])

    def gemm_mixed(self, precision: str, M: int, N: int, K: int, layout: str = "NN") -> Case:
        """The sums are float; what is written is of the inputs' type."""
        if precision == "fp8":
            return self.gemm_fp8(M, N, K)
        kind = PRECISIONS[precision]
        case = self.gemm(layout, M, N, K)
        return replace(case, inputs=[matrix.to(kind) for matrix in case.inputs],
                       settle_ms=self.settle_ms, tf32=precision == "tf32",
                       note="" if precision == "tf32" else f"C in {precision}")

    def gemm_fp8(self, M: int, N: int, K: int) -> Case:
        """B is (N, K), as the program's. So are the sums: those of the matrix unit, which cuBLASLt calls fast
        accumulation; and C is float, so that as many bytes are written."""
        def multiply(a, b, scale):
            if a.dtype == torch.float64:
                return a @ b.t()
            return torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.float32,
                                    use_fast_accum=True)
        kind = getattr(torch, "float8_e4m3fn", None)
        if kind is None or not hasattr(torch, "_scaled_mm"):
            raise CannotDo("this PyTorch has no product of fp8")
        inputs = [self.random(M, K).to(kind), self.random(N, K).to(kind),
                  torch.ones((), device=self.device)]
        return Case(multiply, inputs, settle_ms=self.settle_ms, note="fast accumulation")

    # Stage 3

    def biased_activation(self, activation: str, backward: str, rows: int, cols: int) -> Case:
        act = ACTIVATIONS[activation]
        inputs = [self.random(rows, cols, low=-4, high=4), self.random(cols, low=-4, high=4)]
        if not backward:
            return Case(lambda x, bias: act(x + bias), inputs, compiles=True)
        return Case(lambda x, bias: act(x + bias), inputs, (0,), self.random(rows, cols), "backward",
                    compiles=True, note="X + bias is kept from the forward pass")

    def softmax(self, rows: int, cols: int) -> Case:
        return Case(lambda x: torch.softmax(x, 1), [self.random(rows, cols, low=-8, high=8)],
                    compiles=True)

    def squared_error(self, n: int) -> Case:
        return Case(F.mse_loss, [self.random(n), self.random(n)], (0,), way="both", compiles=True)

    def cross_entropy(self, rows: int, cols: int) -> Case:
        inputs = [self.random(rows, cols, low=-8, high=8), self.labels(rows, cols)]
        return Case(F.cross_entropy, inputs, (0,), way="both", compiles=True)

    # Stage 4

    def dense(self, batch: int, inputs: int, outputs: int) -> Case:
        return Case(lambda x, w, bias: torch.relu(F.linear(x, w, bias)),
                    [self.random(batch, inputs), self.weights(outputs, inputs), self.random(outputs)])

    def mlp_forward(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        def network(x, w1, b1, w2, b2):
            return F.linear(torch.relu(F.linear(x, w1, b1)), w2, b2)
        return Case(network, [self.random(batch, inputs), self.weights(hidden, inputs),
                              self.random(hidden), self.weights(outputs, hidden), self.random(outputs)])

    # Stage 5

    def dense_backward(self, batch: int, inputs: int, outputs: int) -> Case:
        return Case(F.linear, [self.random(batch, inputs), self.weights(outputs, inputs),
                               self.random(outputs)],
                    (0, 1, 2), self.random(batch, outputs), "backward")

    def biased_backward(self, activation: str, rows: int, cols: int) -> Case:
        act = ACTIVATIONS[activation]
        return Case(lambda x, bias: act(x + bias),
                    [self.random(rows, cols, low=-4, high=4), torch.zeros(cols, device=self.device)],
                    (0, 1), self.random(rows, cols), "backward", compiles=True)

    def softmax_backward(self, rows: int, cols: int) -> Case:
        return Case(lambda x: torch.softmax(x, 1), [self.random(rows, cols, low=-4, high=4)], (0,),
                    self.random(rows, cols), "backward", compiles=True)

    def cross_entropy_backward(self, rows: int, cols: int) -> Case:
        return Case(F.cross_entropy, [self.random(rows, cols), self.labels(rows, cols)], (0,),
                    way="backward", compiles=True)

    def sequential(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        def network(x, w1, b1, w2, b2, w3, b3):
            h = torch.relu(F.linear(x, w1, b1))
            return F.linear(torch.relu(F.linear(h, w2, b2)), w3, b3)
        tensors = [self.random(batch, inputs)]
        for n, m in ((inputs, hidden), (hidden, hidden), (hidden, outputs)):
            tensors += [self.weights(m, n), self.random(m)]
        return Case(network, tensors, tuple(range(1, 7)), self.random(batch, outputs), "both")

    # Stage 6

    def conv2d(self, what: str, N: int, C: int, H: int, W: int, K: int, R: int, S: int,
               stride_h: int, stride_w: int, pad_h: int, pad_w: int) -> Case:
        def conv(x, w, bias):
            return F.conv2d(x, w, bias, (stride_h, stride_w), (pad_h, pad_w))
        inputs = [self.random(N, C, H, W), self.random(K, C, R, S) / (C * R * S) ** 0.5,
                  self.random(K)]
        if what.startswith("relu"):
            return Case(lambda x, w, bias: torch.relu(conv(x, w, bias)), inputs)
        if what == "X * W":
            return Case(lambda x, w: conv(x, w, None), inputs[:2])
        wanted = {"grad_X": (0,), "grad_W": (1,)}.get(what, (0, 1, 2))
        shape = N, K, (H + 2 * pad_h - R) // stride_h + 1, (W + 2 * pad_w - S) // stride_w + 1
        return Case(conv, inputs, wanted, self.random(*shape), "backward")

    def maxpool(self, R: int, S: int, stride: int, padding: int, way: str, N: int, C: int, H: int,
                W: int) -> Case:
        def pool(x):
            return F.max_pool2d(x, (R, S), stride, padding)
        x = self.random(N, C, H, W)
        if way == "forward":
            return Case(pool, [x])
        return Case(pool, [x], (0,), torch.rand_like(pool(x)), "backward")

    # Stage 7

    def embedding(self, backward: str, B: int, T: int, C: int, V: int) -> Case:
        # As in a text a few tokens are frequent and most are rare.
        tokens = (torch.rand(B, T, device=self.device) ** 3 * V).long().clamp_(max=V - 1)

        def embed(table, positions):
            return F.embedding(tokens, table) + positions
        tables = [self.random(V, C), self.random(T, C)]
        if not backward:
            return Case(embed, tables)
        return Case(embed, tables, (0, 1), self.random(B, T, C), "backward")

    def layernorm(self, what: str, rows: int, cols: int) -> Case:
        def norm(x, gain, bias):
            return F.layer_norm(x, (cols,), gain, bias)
        x, gain, bias = self.random(rows, cols, low=-2.5, high=5.5), self.random(cols), self.random(cols)
        if what == "of a sum":
            def norm_of_sum(x, residual, gain, bias):
                total = x + residual
                return total, norm(total, gain, bias)
            return Case(norm_of_sum, [x, self.random(rows, cols), gain, bias], compiles=True)
        if what == "backward":
            return Case(norm, [x, gain, bias], (0, 1, 2), self.random(rows, cols), "backward",
                        compiles=True)
        return Case(norm, [x, gain, bias], compiles=True)

    def attention(self, way: str, B: int, H: int, T: int, D: int, queries: int | str, mask: str,
                  precision: str) -> Case:
        is_causal, count = MASKED[mask], queries or T
        if is_causal and count not in (1, T):
            raise CannotDo("PyTorch aligns the mask of fewer queries with the first keys")
        is_causal = is_causal and count == T  # a single query sees every key

        def attend(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        q, k, v = (self.random(B, H, rows, D, low=-largest, high=largest).to(PRECISIONS[precision])
                   for rows, largest in ((count, 2), (T, 2), (T, 1)))
        note = f"sdpa: {self.attention_backend(q, k, v, is_causal, way == 'backward')}"
        case = Case(attend, [q, k, v], note=note)
        if way == "backward":
            case = replace(case, wanted=(0, 1, 2), grad=self.random(B, H, count, D).to(q.dtype), way=way)
        return replace(case, settle_ms=self.settle_ms) if precision == "bf16" else case

    @staticmethod
    def attention_backend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool,
                          trains: bool) -> str:
        """Which of its implementations PyTorch takes; there is no public way to ask."""
        try:
            query = q.detach().requires_grad_(trains)
            chosen = torch._fused_sdp_choice(query, k, v, is_causal=is_causal)
            return torch.nn.attention.SDPBackend(chosen).name.lower().removesuffix("_attention")
        except Exception as error:  # an interface that may change with any version
            return f"unknown ({first_line(error)})"

    def transformer_block(self, way: str, B: int, T: int, C: int, H: int, precision: str) -> Case:
        block = Block(C, H).to(self.device)
        names = [name for name, _ in block.named_parameters()]

        def forward(x, *parameters):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16"):
                return torch.func.functional_call(block, dict(zip(names, parameters)), (x,))
        inputs = [self.random(B, T, C), *(p.detach() for p in block.parameters())]
        if way == "forward":
            return Case(forward, inputs, compiles=True)
        return Case(forward, inputs, tuple(range(len(inputs))), self.random(B, T, C), "backward",
                    compiles=True)

    # Stage 8

    def view_copy(self, view: str, N: int, C: int, H: int, W: int) -> Case:
        """A view of an array, made row-major."""
        seen: Function = {
            "contiguous": lambda a: a,
            "NHWC of NCHW": lambda a: a.permute(0, 2, 3, 1),
            "(HW,NC) of (NC,HW)": lambda a: a.view(N * C, H * W).t(),
            "(W,H,NC) of (NC,H,W)": lambda a: a.view(N * C, H, W).permute(2, 1, 0),
            "expand (N,C,1,1)": lambda a: a.expand(N, C, H, W),
            "expand (H,W)": lambda a: a.expand(N, C, H, W),
            "every second column": lambda a: a[..., ::2],
        }[view]
        shape = {"expand (N,C,1,1)": (N, C, 1, 1), "expand (H,W)": (H, W)}.get(view, (N, C, H, W))
        return Case(lambda a: seen(a).clone(memory_format=torch.contiguous_format), [self.random(*shape)])

    def allocations(self, steps: int, blocks: int) -> Case:
        raise CannotDo("no PyTorch counterpart: the sizes are the program's own")

    def dispatch(self, n: int) -> Case:
        raise CannotDo("no PyTorch counterpart: what is timed is the host")

    def memory_plan(self, steps: int, model: str) -> Case:
        raise CannotDo("no PyTorch counterpart: the graphs are the program's own")

    def chain(self, n: int) -> Case:
        return Case(lambda y, z: F.gelu((y * z + y) / 2, approximate="tanh") * z + y,
                    [self.random(n), self.random(n)], compiles=True)

    def deviation(self, rows: int, cols: int) -> Case:
        return Case(lambda x, m: (x - m).square().mean(1), [self.random(rows, cols), self.random(rows, 1)],
                    compiles=True)

    def gelu_gradient(self, rows: int, cols: int) -> Case:
        def gradient(grad, x):
            grad_x = torch.ops.aten.gelu_backward(grad, x, approximate="tanh")
            return grad_x, grad_x.sum(0)
        return Case(gradient, [self.random(rows, cols), self.random(rows, cols)], compiles=True)

    def network(self, batch: int, inputs: int, hidden: int, outputs: int) -> Case:
        raise CannotDo("no PyTorch counterpart: the program's own copies are timed")

    def deep_perceptron(self, batch: int, width: int, layers: int) -> Case:
        def perceptron(x, *parameters):
            for w, bias in zip(parameters[::2], parameters[1::2]):
                x = torch.tanh(F.linear(x, w, bias))
            return x
        tensors = perceptron_inputs(self.random, batch, width, layers)
        return Case(perceptron, tensors, tuple(range(len(tensors))), self.random(batch, width), "backward")

    def small_graph(self, what: str, n: int) -> Case:
        if what == "four operations":
            return Case(squared_relu(torch.relu), [self.random(n), self.random(n)], (0, 1), way="both")
        return Case(branches, [self.random(n)], (0,), way="both")
