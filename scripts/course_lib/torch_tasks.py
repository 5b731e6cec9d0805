"""The networks that the course's trainings have in PyTorch, their data, and how they are trained on them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from .training_task import Task


def read_idx(path: Path, header: int) -> torch.Tensor:
    """The bytes behind the header of a gzip'd IDX file (scripts/data.py has checked it)."""
    contents = bytearray(gzip.decompress(path.read_bytes()))
    return torch.frombuffer(contents, dtype=torch.uint8)[header:]


def load_digits(folder: Path, part: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as (rows, 784) from 0 to 1, and their classes."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).view(-1, 784)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return images.to(device).float() / 255, labels.to(device).long()


def mlp(widths: list[int], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1])


def toy_task(values: dict, device: torch.device, data: Path) -> Task:
    """All points in every step. Those of XOR are its four; of the others only the number counts: a step
    takes as long whatever they say."""
    widths = [int(width) for width in str(values["network"]).split("-")]
    inputs = torch.rand(values["points"], 2, device=device)
    targets = torch.randint(widths[-1], (values["points"],), device=device)
    if values["data"] == "xor":
        inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], device=device)
        targets = torch.tensor([0, 1, 1, 0], device=device)
    return Task(network=lambda: mlp(widths, nn.Tanh), loss=nn.CrossEntropyLoss(), inputs=inputs,
                targets=targets, batch=len(inputs), epochs=values["epochs"],
                curve="xor_loss" if values["data"] == "xor" else "",
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def cnn_network(hidden: int) -> nn.Sequential:
    """What step 6.4 trains: the images come as rows of 784 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def digits_task(values: dict, device: torch.device, data: Path) -> Task:
    """Handwritten digits, where the program had them and they are here; else as many random images."""
    network, test = str(values["network"]), None
    if values["data"] == "MNIST" and (data / "mnist").is_dir():
        inputs, targets = load_digits(data / "mnist", "train", device)
        inputs, targets = inputs[: values["images"]], targets[: values["images"]]
        test = load_digits(data / "mnist", "t10k", device)
    else:
        inputs = torch.rand(values["images"], 784, device=device)
        targets = torch.randint(10, (values["images"],), device=device)
    def make() -> nn.Sequential:
        if "C" in network:
            return cnn_network(values["hidden"])
        return mlp(list(map(int, network.split("-"))), nn.ReLU)

    return Task(network=make, loss=nn.CrossEntropyLoss(), inputs=inputs, targets=targets,
                batch=values["batch"], epochs=values["epochs"], test=test,
                until=values.get("until") or 0,
                curve="training" if test and not values.get("until") else "",
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def sales_task(values: dict, device: torch.device, data: Path) -> Task:
    """24-32-1 on random rows: the time does not depend on what they say."""
    return Task(
        network=lambda: mlp([24, 32, 1], nn.ReLU), loss=nn.MSELoss(),
        inputs=torch.randn(values["rows"], 24, device=device),
        targets=torch.randn(values["rows"], 1, device=device), batch=values["batch"],
        epochs=values["epochs"], learning_rate=1e-3, optimizer=values["optimizer"])


class Block(nn.Module):
    """Step 7.6's block; the tensors have the names of its checkpoints."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        hidden = nn.functional.gelu(self.fc(self.norm2(x)), approximate="tanh")
        return x + self.out(hidden)


class Transformer(nn.Module):
    """Step 7.7's model: learned positions, a head of its own without a bias, no dropout."""

    def __init__(self, layers: int, heads: int, width: int, context: int, vocabulary: int):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.layers = layers
        for layer in range(layers):
            self.add_module(str(layer), Block(width, heads))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends_box = name.endswith(("proj.weight", "out.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if ends_box else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for layer in range(self.layers):
            x = getattr(self, str(layer))(x)
        return self.head(self.norm(x))


class TokenLoss(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def load_text(folder: Path, device: torch.device) -> torch.Tensor:
    """The first nine tenths of Tiny Shakespeare, a number per character; random ones without it."""
    path = folder / "tiny_shakespeare.txt"
    if not path.is_file():
        return torch.randint(65, (1003854,), device=device)
    contents = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    tokens = torch.unique(contents, return_inverse=True)[1].to(device)
    return tokens[: len(tokens) // 10 * 9]


def text_task(values: dict, device: torch.device, data: Path) -> Task:
    """Pieces of text, and the same a character further: views, of which a batch is copied."""
    text = load_text(data, device)
    sizes = [values[name] for name in ("layers", "heads", "width", "context")]
    return Task(
        network=lambda: Transformer(*sizes, int(text.max()) + 1), loss=TokenLoss(),
        inputs=text[:-1].unfold(0, values["context"], 1),
        targets=text[1:].unfold(0, values["context"], 1), batch=values["batch"], epochs=1,
        steps_wanted=values["steps"], learning_rate=float(values["learning_rate"]),
        optimizer=values["optimizer"], is_text=True, curve="training")


TASKS: dict[str, Callable[[dict, torch.device, Path], Task]] = {
    "train_toy": toy_task, "train_digits": digits_task, "train_sales": sales_task,
    "train_text": text_task}
