"""What a training of the course is, for the peers that do it too: torch_training.py, jax_training.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

QUICK_STEPS = 20  # of a training that only shows that it runs


@dataclass
class Task:
    """A network, its data on the device, and how it is trained on them. Arrays are the peer's."""

    network: Callable[..., Any]  # makes it
    loss: Callable[..., Any]  # of the network's outputs and the targets
    inputs: Any  # (rows, inputs)
    targets: Any  # (rows, outputs), or (rows) classes
    batch: int  # rows of a step; the rows left over at the end of an epoch are dropped
    epochs: int
    learning_rate: float
    optimizer: str = "adam"  # or "sgd", "momentum", "adamw"
    steps_wanted: int = 0  # of an epoch, from fewer rows than there are; 0: as many as they make
    seed: int = 1
    autocast: bool = False  # to bfloat16, in forward and backward passes
    test: tuple[Any, Any] | None = None  # images that training does not see
    is_text: bool = False  # rows of tokens
    until: int = 0  # percent of the tests: an epoch that reaches it is the last; the rate falls; 0: neither
    curve: str = ""  # the program's name for its series of losses, where it trains on the same data

    @property
    def steps(self) -> int:
        """of one epoch"""
        return self.steps_wanted or len(self.inputs) // self.batch

    @property
    def gathers(self) -> bool:
        """Whether a batch is some of the rows; else it is everything."""
        return self.batch < len(self.inputs)

    def shortened(self) -> Task:
        """A few steps of it."""
        if self.steps == 1:
            return replace(self, epochs=QUICK_STEPS)
        return replace(self, epochs=1, steps_wanted=min(QUICK_STEPS, self.steps))

    @property
    def is_large(self) -> bool:
        """Whether its products are large enough for matrix units to matter: it is trained in bfloat16 too."""
        return self.is_text and self.batch * self.inputs.shape[1] > 8192


def described(task: Task, ms: float, epochs: int, loss: float, accuracy: float | None) -> str:
    """What a step took, and what was learnt."""
    note = f"{1e3 * ms / (epochs * task.steps):.1f} us a step"
    if task.is_text:
        tokens = task.epochs * task.steps * task.batch * task.inputs.shape[1]
        note += f", {tokens / ms / 1e3:.3g} M tokens/s"
    note += f", last loss {loss:.3g}" if accuracy is None else f", test accuracy {accuracy:.2f}%"
    return note + (f", epoch {epochs}" if task.until else "")
