"""The node vectors of ONNX's package: operators with attributes, inputs and outputs; no test itself."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from numpy import ndarray
from onnx import defs, helper, numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"

# Attributes with which ONNX computed a case's outputs, and which its node lacks.
FORGOTTEN = {"adam_multiple": {"epsilon": 1e-2}}


@dataclass
class Case:
    """A node, and one set of its inputs and outputs; an optional one that is left out is None."""

    name: str
    operator: str
    attributes: dict
    inputs: list[ndarray | None]
    outputs: list[ndarray | None]

    def input(self, number: int) -> ndarray | None:
        return self.inputs[number] if number < len(self.inputs) else None


class Node:
    """The model in a folder of ONNX's. `node`, `operator` and `version`, in which ONNX last changed the
    operator, are None where it has several nodes."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = folder.name.removeprefix("test_")
        self.model = onnx.load(folder / "model.onnx")
        nodes = self.model.graph.node
        self.node = nodes[0] if len(nodes) == 1 else None
        self.operator = self.version = None
        if self.node is not None:
            domain = self.node.domain
            opset = next(o.version for o in self.model.opset_import if o.domain == domain)
            self.operator = f"{domain}.{self.node.op_type}" if domain else self.node.op_type
            self.version = defs.get_schema(self.node.op_type, opset, domain).since_version

    def cases(self) -> Iterator[Case]:
        """One for each of its sets of data."""
        attributes = {a.name: helper.get_attribute_value(a) for a in self.node.attribute}
        attributes = {name: value.decode() if isinstance(value, bytes) else value
                      for name, value in attributes.items()}
        forgotten = FORGOTTEN.get(self.name, {})
        assert not forgotten.keys() & attributes.keys(), f"FORGOTTEN: {self.name} has what it lacked"
        attributes |= forgotten
        for data in sorted(self.folder.glob("test_data_set_*")):
            inputs, outputs = (
                self._arrays(data, kind, names, given) for kind, names, given in (
                    ("input", self.node.input, self.model.graph.input),
                    ("output", self.node.output, self.model.graph.output)))
            yield Case(self.name, self.operator, attributes, inputs, outputs)

    @staticmethod
    def _arrays(data: Path, kind: str, names: Sequence[str], given: Sequence) -> list[ndarray | None]:
        number = {value.name: i for i, value in enumerate(given)}
        arrays = []
        for name in names:
            tensor = onnx.TensorProto()
            if name:
                tensor.ParseFromString((data / f"{kind}_{number[name]}.pb").read_bytes())
            arrays.append(numpy_helper.to_array(tensor) if name else None)
        return arrays


@functools.cache
def nodes() -> list[Node]:
    """All of them, by name."""
    return [Node(folder) for folder in sorted(FOLDER.iterdir())]
