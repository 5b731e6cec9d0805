"""The networks that the course's trainings have in JAX: functions of a dictionary of parameters, whose names
and first values are those of torch_tasks.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax, nn

Array = jax.Array
Parameters = dict[str, Array]


def linear(x: Array, w: Array, bias: Array | None = None) -> Array:
    """`w` is (outputs, inputs). The product is in x's type, the sum behind it in the bias's."""
    y = x @ w.astype(x.dtype).T
    return y if bias is None else y + bias


def normalized(x: Array, gain: Array, bias: Array) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain + bias


def mean_cross_entropy(logits: Array, labels: Array) -> Array:
    chances = nn.log_softmax(logits)
    return -jnp.take_along_axis(chances, labels[..., None], -1).mean()


def mean_squared_error(outputs: Array, targets: Array) -> Array:
    return ((outputs - targets) ** 2).mean()


def uniform(key: Array, shape: tuple[int, ...], inputs: int) -> Array:
    """As PyTorch begins a layer of so many inputs."""
    bound = inputs ** -0.5
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


# ---- Layers one after the other ----------------------------------------------------------------


def mlp_parameters(key: Array, widths: list[int]) -> Parameters:
    parameters = {}
    for layer, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        for name, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            key, own = jax.random.split(key)
            parameters[f"{layer}.{name}"] = uniform(own, shape, inputs)
    return parameters


def mlp(parameters: Parameters, x: Array, activation=nn.relu) -> Array:
    layers = len(parameters) // 2
    for layer in range(layers):
        x = linear(x, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])
        x = activation(x) if layer + 1 < layers else x
    return x


def cnn_parameters(key: Array, hidden: int) -> Parameters:
    parameters = {}
    for name, inputs, outputs in (("first", 1, 8), ("second", 8, 16)):
        for part, shape in (("weight", (outputs, inputs, 3, 3)), ("bias", (outputs, 1, 1))):
            key, own = jax.random.split(key)
            parameters[f"{name}.{part}"] = uniform(own, shape, 9 * inputs)
    return {**parameters, **mlp_parameters(key, [784, hidden, 10])}


def cnn(parameters: Parameters, x: Array) -> Array:
    """What step 6.4 trains: the images come as rows of 784 pixels."""
    x = x.reshape(-1, 1, 28, 28)
    for name in ("first", "second"):
        x = lax.conv_general_dilated(x, parameters[f"{name}.weight"], (1, 1), "SAME")
        x = nn.relu(x + parameters[f"{name}.bias"])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    last = {name: value for name, value in parameters.items() if name[0].isdigit()}
    return mlp(last, x.reshape(len(x), -1))


# ---- The transformer ---------------------------------------------------------------------------


def block_parameters(key: Array, width: int, layers: int) -> Parameters:
    """Of step 7.6's block; the arrays have the names of its checkpoints."""
    shapes = {"qkv": (3 * width, width), "proj": (width, width), "fc": (4 * width, width),
              "out": (width, 4 * width)}
    parameters = {}
    for name, shape in shapes.items():
        key, own = jax.random.split(key)
        std = 0.02 / (2 * layers) ** 0.5 if name in ("proj", "out") else 0.02
        parameters[f"{name}.weight"] = std * jax.random.normal(own, shape)
        parameters[f"{name}.bias"] = jnp.zeros(shape[0])
    for name in ("norm1", "norm2"):
        parameters |= {f"{name}.weight": jnp.ones(width), f"{name}.bias": jnp.zeros(width)}
    return parameters


def attend(q: Array, k: Array, v: Array, is_causal: bool, by_cudnn: bool) -> Array:
    """q, k, v: (batch, length, heads, width of a head). cuDNN takes half precision only."""
    return nn.dot_product_attention(q, k, v, is_causal=is_causal, implementation="cudnn" if by_cudnn else "xla")


def block(parameters: Parameters, x: Array, heads: int, kind: jnp.dtype, by_cudnn: bool) -> Array:
    """`kind`: what products and attention are computed in; norms, sums and residual branches are in x's type."""
    def layer(name: str, x: Array) -> Array:
        return linear(x.astype(kind), parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def norm(name: str, x: Array) -> Array:
        return normalized(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])
    batch, length, width = x.shape
    qkv = layer("qkv", norm("norm1", x)).astype(kind).reshape(batch, length, 3, heads, width // heads)
    attended = attend(*(qkv[:, :, part] for part in range(3)), True, by_cudnn)
    x = x + layer("proj", attended.reshape(batch, length, width))
    return x + layer("out", nn.gelu(layer("fc", norm("norm2", x)), approximate=True))


def transformer_parameters(key: Array, layers: int, width: int, context: int, vocabulary: int) -> Parameters:
    """Step 7.7's model: learned positions, a head of its own without a bias, no dropout."""
    parameters = {"norm.weight": jnp.ones(width), "norm.bias": jnp.zeros(width)}
    for name, rows in (("token", vocabulary), ("position", context), ("head", vocabulary)):
        key, own = jax.random.split(key)
        parameters[f"{name}.weight"] = 0.02 * jax.random.normal(own, (rows, width))
    for layer in range(layers):
        key, own = jax.random.split(key)
        parameters |= {f"{layer}.{name}": value for name, value in block_parameters(own, width, layers).items()}
    return parameters


def transformer(parameters: Parameters, tokens: Array, layers: int, heads: int, kind: jnp.dtype,
                by_cudnn: bool) -> Array:
    x = parameters["token.weight"][tokens] + parameters["position.weight"][: tokens.shape[1]]
    for layer in range(layers):
        begin = f"{layer}."
        own = {name[len(begin):]: value for name, value in parameters.items() if name.startswith(begin)}
        x = block(own, x, heads, kind, by_cudnn)
    x = normalized(x, parameters["norm.weight"], parameters["norm.bias"])
    return linear(x.astype(kind), parameters["head.weight"]).astype(x.dtype)
