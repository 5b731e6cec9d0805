"""The course's trainings in JAX: the same model, data, batch, optimizer and precision as in the programs.

An epoch is one compiled function: its steps are a `lax.scan` over the batches, each with its gathering, forward
pass, gradients and update, so that XLA has all of it before it. Where a batch is everything the whole training
is. The data stay on the device, which shuffles them; parameters and the optimizer's state are donated. The
larger transformer is trained in bfloat16 too, with cuDNN's attention where there is a GPU. A time is that of
a whole training on the wall clock, from initialised parameters to the device at rest; loading and compiling
come before.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from . import jax_networks as networks
from .peers import blank_row, first_line, make_row
from .problems import Problem
from .training_task import Task, described

Array = jax.Array
Parameters = networks.Parameters

MOMENTUM, BETAS, EPSILON, DECAY = 0.9, (0.9, 0.999), 1e-8, 0.01  # as PyTorch has them


# ---- Networks and their data -------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    parameters: Callable[[Array], Parameters]  # of a random key: the first ones
    outputs: Callable[..., Array]  # (parameters, inputs) → outputs


@partial(jax.tree_util.register_dataclass, data_fields=["text"], meta_fields=["length"])
@dataclass(frozen=True)
class Windows:
    """Every piece of `length` tokens that a text has, as rows that are made when they are asked for."""

    text: Array
    length: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.text) - self.length + 1, self.length

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Array) -> Array:
        return self.text[rows[:, None] + jnp.arange(self.length)]


def read_idx(path: Path, header: int) -> np.ndarray:
    """The bytes behind the header of a gzip'd IDX file (scripts/data.py has checked it)."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8)[header:]


def load_digits(folder: Path, part: str) -> tuple[Array, Array]:
    """Images as (rows, 784) from 0 to 1, and their classes."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return jnp.asarray(images, jnp.float32) / 255, jnp.asarray(labels, jnp.int32)


def load_text(folder: Path, key: Array) -> Array:
    """The first nine tenths of Tiny Shakespeare, a number per character; random ones without it."""
    path = folder / "tiny_shakespeare.txt"
    if not path.is_file():
        return jax.random.randint(key, (1003854,), 0, 65)
    tokens = np.unique(np.frombuffer(path.read_bytes(), np.uint8), return_inverse=True)[1]
    return jnp.asarray(tokens[: len(tokens) // 10 * 9], jnp.int32)


def mlp_network(widths: list[int], **activation: Callable) -> Network:
    return Network(partial(networks.mlp_parameters, widths=widths), partial(networks.mlp, **activation))


def toy_task(values: dict, key: Array, data: Path) -> Task:
    """All points in every step. Of all but XOR's only the number counts."""
    widths = [int(width) for width in str(values["network"]).split("-")]
    inputs = jax.random.uniform(key, (values["points"], 2))
    targets = jax.random.randint(key, (values["points"],), 0, widths[-1])
    if values["data"] == "xor":
        inputs = jnp.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        targets = jnp.array([0, 1, 1, 0])
    return Task(network=lambda: mlp_network(widths, activation=jnp.tanh), loss=networks.mean_cross_entropy,
                inputs=inputs, targets=targets, batch=len(inputs), epochs=values["epochs"],
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def digits_task(values: dict, key: Array, data: Path) -> Task:
    """Handwritten digits, where the program had them and they are here; else as many random images."""
    text, test = str(values["network"]), None
    if values["data"] == "MNIST" and (data / "mnist").is_dir():
        inputs, targets = (part[: values["images"]] for part in load_digits(data / "mnist", "train"))
        test = load_digits(data / "mnist", "t10k")
    else:
        inputs = jax.random.uniform(key, (values["images"], 784))
        targets = jax.random.randint(key, (values["images"],), 0, 10)
    network = (Network(partial(networks.cnn_parameters, hidden=values["hidden"]), networks.cnn)
               if "C" in text else mlp_network(list(map(int, text.split("-")))))
    return Task(network=lambda: network, loss=networks.mean_cross_entropy, inputs=inputs, targets=targets,
                batch=values["batch"], epochs=values["epochs"], test=test, until=values.get("until") or 0,
                learning_rate=float(values["learning_rate"]), optimizer=values["optimizer"])


def sales_task(values: dict, key: Array, data: Path) -> Task:
    """24-32-1 on random rows: the time does not depend on what they say."""
    return Task(network=lambda: mlp_network([24, 32, 1]), loss=networks.mean_squared_error,
                inputs=jax.random.normal(key, (values["rows"], 24)),
                targets=jax.random.normal(key, (values["rows"], 1)), batch=values["batch"],
                epochs=values["epochs"], learning_rate=1e-3, optimizer=values["optimizer"])


def text_task(values: dict, key: Array, data: Path) -> Task:
    """Pieces of text, and the same a character further."""
    text, layers, context = load_text(data, key), values["layers"], values["context"]
    vocabulary = int(text.max()) + 1

    def network(autocast: bool, by_cudnn: bool) -> Network:
        return Network(partial(networks.transformer_parameters, layers=layers, width=values["width"],
                               context=context, vocabulary=vocabulary),
                       partial(networks.transformer, layers=layers, heads=values["heads"],
                               kind=jnp.bfloat16 if autocast else jnp.float32, by_cudnn=by_cudnn))
    return Task(network=network, loss=networks.mean_cross_entropy, inputs=Windows(text[:-1], context),
                targets=Windows(text[1:], context), batch=values["batch"], epochs=1,
                steps_wanted=values["steps"], learning_rate=float(values["learning_rate"]),
                optimizer=values["optimizer"], is_text=True)


TASKS: dict[str, Callable[[dict, Array, Path], Task]] = {
    "train_toy": toy_task, "train_digits": digits_task, "train_sales": sales_task, "train_text": text_task}


# ---- Optimizers --------------------------------------------------------------------------------


def zeros_for(rule: str, parameters: Parameters) -> list[Parameters]:
    """The state that a rule keeps of its parameters."""
    return [jax.tree.map(jnp.zeros_like, parameters) for _ in range({"sgd": 0, "momentum": 1}.get(rule, 2))]


def updated(rule: str, parameters: Parameters, state: list[Parameters], grads: Parameters, rate: Array | float,
            number: Array) -> tuple[Parameters, list[Parameters]]:
    """Parameters and state after step `number`, the first of which is 1."""
    if rule in ("sgd", "momentum"):
        if rule == "momentum":
            grads = jax.tree.map(lambda v, g: MOMENTUM * v + g, state[0], grads)
            state = [grads]
        return jax.tree.map(lambda p, g: p - rate * g, parameters, grads), state
    first = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, state[0], grads)
    second = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, state[1], grads)
    corrections = [1 - beta ** number for beta in BETAS]
    kept = 1 - rate * DECAY if rule == "adamw" else 1

    def step(p: Array, m: Array, v: Array) -> Array:
        return kept * p - rate * (m / corrections[0]) / (jnp.sqrt(v / corrections[1]) + EPSILON)
    return jax.tree.map(step, parameters, first, second), [first, second]


# ---- Training ----------------------------------------------------------------------------------


class Trainer:
    """Trains a task's network; compiles all that it needs when it is made."""

    def __init__(self, task: Task, on_gpu: bool):
        self.task = task
        self.network = task.network(task.autocast, on_gpu and task.autocast) if task.is_text else task.network()
        self.steps = task.steps if task.gathers else task.epochs  # of one call
        self.first = self.network.parameters(jax.random.key(task.seed))
        self.data = task.inputs, task.targets
        order = None
        if task.gathers:
            self.make_order = jax.jit(self._order).lower(jax.random.key(0)).compile()
            order = self.make_order(jax.random.key(0))
        self.run_steps = jax.jit(self._run_steps, donate_argnums=0).lower(
            self._carry(), self.data, order, task.learning_rate).compile()
        self.parameters, self.loss, self.epochs = self.first, 0.0, 0
        if task.test:
            self.count_hits = jax.jit(self._hits).lower(self.first, *task.test).compile()

    def _carry(self) -> tuple:
        """Copies: they are donated."""
        parameters = jax.tree.map(jnp.copy, self.first)
        return parameters, zeros_for(self.task.optimizer, parameters), jnp.zeros((), jnp.int32)

    def _order(self, key: Array) -> Array:
        """The rows of every batch of an epoch."""
        shuffled = jax.random.permutation(key, len(self.task.inputs))
        return shuffled[: self.steps * self.task.batch].reshape(self.steps, self.task.batch)

    def _run_steps(self, carry: tuple, data: tuple, order: Array | None, rate: Array | float) -> tuple:
        def step(carry: tuple, rows: Array | None) -> tuple:
            parameters, state, number = carry
            inputs, targets = data if rows is None else (part[rows] for part in data)
            loss, grads = jax.value_and_grad(
                lambda parameters: self.task.loss(self.network.outputs(parameters, inputs), targets))(parameters)
            number = number + 1
            return (*updated(self.task.optimizer, parameters, state, grads, rate, number), number), loss
        carry, losses = lax.scan(step, carry, order, self.steps)
        return carry, losses[-1]

    def _hits(self, parameters: Parameters, images: Array, labels: Array) -> Array:
        return (self.network.outputs(parameters, images).argmax(1) == labels).sum()

    def accuracy(self) -> float:
        """Percent of the test images that are called by their names."""
        images, labels = self.task.test
        return 100 * int(self.count_hits(self.parameters, images, labels)) / len(labels)

    def train(self) -> float:
        """One whole training; its time in milliseconds."""
        task, carry = self.task, self._carry()
        keys = list(jax.random.split(jax.random.key(task.seed), task.epochs)) if task.gathers else [None]
        jax.block_until_ready((carry, keys))
        start = time.perf_counter()
        for number, key in enumerate(keys):
            rate = task.learning_rate * (1 - number / task.epochs if task.until else 1)
            carry, loss = self.run_steps(carry, self.data, self.make_order(key) if task.gathers else None, rate)
            self.parameters, self.epochs = carry[0], number + 1 if task.gathers else task.epochs
            if task.until and self.accuracy() >= task.until:
                break
        jax.block_until_ready((carry, loss))
        ms = 1e3 * (time.perf_counter() - start)
        self.loss = float(loss)
        return ms


class Trainings:
    """Measures trainings. The data of one and what was compiled for it are kept for the next round. With `quick` a training is a few
    steps."""

    def __init__(self, on_gpu: bool, data: Path, quick: bool = False):
        self.on_gpu, self.data, self.quick = on_gpu, data, quick
        self.tasks: dict[str, Task] = {}
        self.trainers: dict[tuple[str, bool], Trainer] = {}

    def task(self, problem: Problem, seed: int) -> Task:
        task = replace(TASKS[problem.kind](problem.values, jax.random.key(seed), self.data), seed=seed)
        return task.shortened() if self.quick else task

    def measure(self, problem: Problem, seed: int = 1) -> list[dict]:
        rows = []
        if repr(problem) not in self.tasks:
            self.tasks[repr(problem)] = self.task(problem, seed)
        task = self.tasks[repr(problem)]
        for autocast in (False, True) if task.is_large and self.on_gpu else (False,):
            name, key = "JAX jit bf16" if autocast else "JAX jit", (repr(problem), autocast)
            try:
                if key not in self.trainers:
                    self.trainers[key] = Trainer(replace(task, autocast=autocast), self.on_gpu)
                trainer = self.trainers[key]
                ms = trainer.train()
                accuracy = trainer.accuracy() if task.test else None
                rows.append(make_row(name, [ms], described(task, ms, trainer.epochs, trainer.loss, accuracy)))
            except Exception as error:  # XLA fails in as many ways as it has parts
                rows.append(blank_row(name, first_line(error)))
        return rows
