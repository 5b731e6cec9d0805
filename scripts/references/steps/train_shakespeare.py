"""The references of train_shakespeare."""

import math

import numpy as np

from inputs import bell, philox_words
from steps.layernorm import layer_norm, layer_norm_backward
from steps.losses import cross_entropy
from steps.transformer_block import block, block_backward, block_shapes, BLOCK_TENSORS


def references():
    """Two blocks of two heads with AdamW on a text of eleven characters: the losses of 20 steps."""
    generator = np.random.default_rng(75)
    seed, layers, heads, channels, context, batch, steps = 2**33 + 5, 2, 2, 8, 6, 3, 20
    text = np.frombuffer(b"abcdefghij\n", np.uint8)[np.cumsum(generator.integers(1, 4, 300)) % 11]
    tokens = np.unique(text, return_inverse=True)[1]
    train, vocabulary = tokens[:len(text) // 10 * 9], 11
    shapes = {"token.weight": (vocabulary, channels), "position.weight": (context, channels)}
    for layer in range(layers):
        shapes |= {f"{layer}.{name}": shape for name, shape in block_shapes(channels).items()}
    shapes |= {"norm.weight": (channels,), "norm.bias": (channels,),
               "head.weight": (vocabulary, channels)}
    p = {}
    for stream, (name, shape) in enumerate(shapes.items()):
        p[name] = np.full(shape, 1.0 if "norm" in name and name.endswith("weight") else 0.0)
        if len(shape) == 2:
            ends_box = name.endswith((".proj.weight", ".out.weight"))
            deviation = np.float32(0.02 / math.sqrt(2 * layers) if ends_box else 0.02)
            p[name] = (deviation * bell(seed, stream, shape[0] * shape[1])).reshape(shape).astype(
                np.float64)
    moments = {name: (np.zeros(shape), np.zeros(shape)) for name, shape in shapes.items()}
    highest, beta1, beta2, epsilon, decay = (
        float(np.float32(value)) for value in (3e-3, 0.9, 0.999, 1e-8, 1e-2))
    blocks = [{name: f"{layer}.{name}" for name in BLOCK_TENSORS} for layer in range(layers)]
    losses = []
    for step in range(steps):
        words = philox_words(np.arange((step + 1) * batch // 4 + 1), seed, 0x7E87, 0).reshape(-1)
        begin = words[step * batch:(step + 1) * batch] % np.uint64(len(train) - context)
        place = begin.astype(np.int64)[:, None] + np.arange(context)
        x, kept = p["token.weight"][train[place]] + p["position.weight"], []
        for names in blocks:
            x, of_block = block(x, {name: p[full] for name, full in names.items()}, heads)
            kept.append(of_block)
        norm, of_norm = layer_norm(x, p["norm.weight"], p["norm.bias"])
        logits = (norm @ p["head.weight"].T).reshape(-1, vocabulary)
        loss, grad = cross_entropy(logits, train[place + 1].reshape(-1))
        losses.append(loss)
        grads = {"head.weight": grad.T @ norm.reshape(-1, channels)}
        grad, grads["norm.weight"], grads["norm.bias"] = layer_norm_backward(
            (grad @ p["head.weight"]).reshape(norm.shape), p["norm.weight"], of_norm)
        for names, of_block in reversed(list(zip(blocks, kept))):
            grad, of_tensors = block_backward(grad, {name: p[full] for name, full in names.items()},
                                              heads, of_block)
            grads |= {names[name]: of_tensor for name, of_tensor in of_tensors.items()}
        grads["position.weight"] = grad.sum(axis=0)
        grads["token.weight"] = np.zeros(shapes["token.weight"])
        np.add.at(grads["token.weight"], train[place], grad)
        warm = steps // 10
        done = (step - warm) / (steps - warm)
        rate = float(np.float32(highest * (step + 1) / warm if step < warm else
                                highest * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)))
        for name, (m, v) in moments.items():
            m += (1 - beta1) * (grads[name] - m)
            v += (1 - beta2) * (grads[name]**2 - v)
            m_hat, v_hat = m / (1 - beta1**(step + 1)), v / (1 - beta2**(step + 1))
            p[name] -= rate * decay * p[name] + rate * m_hat / (np.sqrt(v_hat) + epsilon)
    return {"text": text.astype(np.float64), "losses": np.array(losses)}
