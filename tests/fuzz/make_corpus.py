#!/usr/bin/env python3
"""Writes the inputs that the fuzz targets begin with: tests/fuzz/corpus/TARGET/NAME.

They are small files of each format, right ones and wrong ones. Inputs that were findings once lie beside them
under names of their own, which this leaves alone. Run it again when a format changes.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def gzip(content: bytes) -> bytes:
    """Packed without a name or a time, so that the bytes are always the same."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(content) + packer.flush()


# ---- IDX ------------------------------------------------------------------------------------------

def images(count: int, rows: int, cols: int) -> bytes:
    pixels = bytes(i * 37 % 251 for i in range(count * rows * cols))
    return struct.pack(">4I", 0x803, count, rows, cols) + pixels


def labels(*values: int) -> bytes:
    return struct.pack(">2I", 0x801, len(values)) + bytes(values)


def idx() -> dict[str, bytes]:
    return {
        "images": images(2, 2, 3), "images.gz": gzip(images(2, 2, 3)), "one_image": images(1, 1, 1),
        "labels": labels(0, 9, 5), "labels.gz": gzip(labels(0, 9, 5)), "label_10": labels(1, 10),
        "no_images": images(0, 2, 2), "many_images": struct.pack(">4I", 0x803, 2**32 - 1, 4096, 4096),
        "short": images(2, 2, 3)[:-1], "long": labels(1, 2) + b"\0", "short.gz": gzip(labels(1))[:-3],
        "header.gz": gzip(images(1, 1, 1)[:7]),
    }


def mnist_data() -> dict[str, bytes]:
    blank = gzip(struct.pack(">4I", 0x803, 2, 28, 28) + bytes(2 * 28 * 28))
    whole = [blank, labels(3, 4), blank, gzip(labels(9, 0))]
    border = b"----\n"
    return {
        "whole": border.join(whole), "three_files": border.join(whole[:3]),
        "too_few_labels": border.join([blank, labels(3), blank, labels(9, 0)]),
        "of_27_x_28": border.join([gzip(struct.pack(">4I", 0x803, 2, 27, 28) + bytes(2 * 27 * 28)),
                                   *whole[1:]]),
        "labels_for_images": border.join([labels(1), labels(1), blank, labels(9, 0)]),
    }


# ---- Arrays ---------------------------------------------------------------------------------------

def npy_file(descr: str, shape: str, data: bytes, version: int = 1, order: str = "False") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def npy() -> dict[str, bytes]:
    return {
        "f4": npy_file("<f4", "(2, 3)", struct.pack("<6f", *range(6))),
        "f8_v2": npy_file("<f8", "(1,)", struct.pack("<d", 0.1), version=2),
        "i4": npy_file("<i4", "()", struct.pack("<i", -7)),
        "i8_v3": npy_file("<i8", "(2,)", struct.pack("<2q", -1, 2**62), version=3),
        "u1": npy_file("|u1", "(3, 1)", b"\0\1\377"), "empty": npy_file("<f4", "(3, 0)", b""),
        "fortran": npy_file("<f4", "(1,)", bytes(4), order="True"),
        "other_type": npy_file(">c16", "(1,)", bytes(16)),
        "large": npy_file("<f8", "(4294967296, 4294967296)", b""),
        "short": npy_file("<f4", "(2,)", bytes(7)),
    }


def tensors(metadata: dict[str, str], arrays: dict[str, list], **also) -> bytes:
    """A safetensors file; an array is a list of floats, or of such lists."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, rows in arrays.items():
        nested = bool(rows) and isinstance(rows[0], list)
        shape = [len(rows), len(rows[0])] if nested else [len(rows)]
        values = sum(rows, []) if nested else rows
        begin, data = len(data), data + struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    header.update(also)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def safetensors() -> dict[str, bytes]:
    return {
        "two": tensors({"steps": "12"}, {"b": [[1.0, 2.0]], "a": [0.5]}), "none": tensors({}, {}),
        "metadata": tensors({"": "", "text": "line\nbreak \u00e4"}, {}),
        "scalar": tensors({}, {"a": [1.0]}).replace(b"[1]", b"[] "),
        "no_elements": tensors({}, {"a": [1.0]}, b={"dtype": "F32", "shape": [3, 0], "data_offsets": [4, 4]}),
        "other_type": tensors({}, {"a": [1.0]}).replace(b"F32", b"I32"),
        "gap": tensors({}, {"a": [1.0]}).replace(b"[0,4]", b"[1,5]"),
        "short": tensors({}, {"a": [1.0, 2.0]})[:-1], "long": tensors({}, {"a": [1.0]}) + b"\0",
        "twice": struct.pack("<Q", 15) + b'{"a":{},"a":{}}',
        "deep": struct.pack("<Q", 16) + b'{"a":{"b":[[]]}}',
        "long_header": struct.pack("<Q", 2**40) + b"{}",
    }


def training(optimizer: str, **more: str) -> dict[str, str]:
    return {"training.steps": "12", "training.epochs": "3", "training.seed": "1",
            "training.optimizer": optimizer, **{f"training.more.{key}": value for key, value in more.items()}}


def checkpoint() -> dict[str, bytes]:
    model = {"model": "Sequential{Linear(2, 1)}"}
    weights = {"0.weight": [[0.5, -1.0]], "0.bias": [2.0]}

    def states(*names: str) -> dict[str, list]:
        return {f"optimizer.{name}.{key}": rows for name in names for key, rows in weights.items()}

    return {
        "weights": tensors({}, weights), "sgd": tensors({**model, **training("sgd", batch="16")}, weights),
        "momentum": tensors({**model, **training("momentum")}, {**weights, **states("m")}),
        "adam": tensors({**model, **training("adam")}, {**weights, **states("m", "v")}),
        "no_v": tensors(training("adam"), {**weights, **states("m")}),
        "other_model": tensors({"model": "Sequential{ReLU()}"}, weights),
        "other_shape": tensors({}, {"0.weight": [0.5, -1.0], "0.bias": [2.0]}),
        "not_finite": tensors({}, {"0.weight": [[0.5, float("nan")]], "0.bias": [2.0]}),
        "no_seed": tensors({"training.optimizer": "sgd", "training.steps": "1"}, weights),
    }


def checkpoint_sales() -> dict[str, bytes]:
    sales = {"categories": "Books\tGarden", "mean": "0x1p+0 0x1.8p+1 -0x1p-3 0x0p+0",
             "scale": "0x1p+0 0x1p+0 0x1p-10 0x1p+4", "batch": "1024", "source": "file"}
    return {
        "whole": tensors(training("adam", **sales), {}),
        "decimal": tensors(training("sgd", **{**sales, "mean": "1 2.5 3e2 -4"}), {}),
        "three_numbers": tensors(training("sgd", **{**sales, "scale": "1 2 3"}), {}),
        "no_categories": tensors(training("sgd", mean=sales["mean"], scale=sales["scale"]), {}),
    }


def checkpoint_shakespeare() -> dict[str, bytes]:
    def model(layers: str, vocabulary: str = "97", width: str = "1") -> dict[str, str]:
        return training("sgd", vocabulary=vocabulary, layers=layers, heads="1", width=width, context="1",
                        batch="1")

    one, four = [1.0], [1.0] * 4
    block = {"norm1.weight": one, "norm1.bias": one, "qkv.weight": [one] * 3, "qkv.bias": one * 3,
             "proj.weight": [one], "proj.bias": one, "norm2.weight": one, "norm2.bias": one,
             "fc.weight": [one] * 4, "fc.bias": four, "out.weight": [four], "out.bias": one}
    arrays = {"token.weight": [one], "position.weight": [one],
              **{f"0.{name}": rows for name, rows in block.items()},
              "norm.weight": one, "norm.bias": one, "head.weight": [one]}
    return {
        "whole": tensors(model("1"), arrays), "no_tensors": tensors(model("1"), {}),
        "many_layers": tensors(model("999999999"), {}), "wide": tensors(model("1", width="65536"), {}),
        "other_vocabulary": tensors(model("1", vocabulary="10 32 97"), {}),
        "no_vocabulary": tensors(training("sgd"), {}),
    }


# ---- Text -----------------------------------------------------------------------------------------

def sales() -> dict[str, bytes]:
    line = "Tea\tGRO-1\t2024-02-29\t2024-02-29T09:15:00Z\t3\t5.90\tGroceries\tuser1\t16.81\t17"
    wrong = [line.replace("02-29\t", "02-30\t"), line.replace("5.90", "much"), line.replace("5.90", "2e9"),
             line.replace("Tea", ""), line.replace("\t17", ""), ""]
    return {
        "one": line.encode(), "two": f"{line}\r\n{line.replace('Groceries', 'Garden')}\n".encode(),
        "wrong": "\n".join(wrong).encode(), "bytes": line.replace("Tea", "Caf\u00e9").encode("latin-1"),
        "utf8": line.replace("Tea", "\u714e\u8336 \U0001f375").encode(),
        "first_and_last_day": f"{line.replace('2024-02-29', '0001-01-01')}\n"
                              f"{line.replace('2024-02-29', '9999-12-31')}".encode(),
    }


def shakespeare_text() -> dict[str, bytes]:
    return {"ascii": b"FIRST THREAD:\nWhat tile loads the bank?\n",
            "utf8": "a\u00e9\u714e\U0001f375".encode(),
            "bytes": bytes(range(0, 256, 5)), "one": b"a"}


def vocabulary() -> dict[str, bytes]:
    return {"three": b"10 32 97", "all": " ".join(map(str, range(250, 256))).encode(), "twice": b"97 97",
            "descending": b"98 97", "too_large": b"256", "sign": b"-1 +2", "empty": b""}


def options() -> dict[str, bytes]:
    def arguments(first: int, *lines: str) -> bytes:
        return bytes([first]) + "\n".join(lines).encode()

    return {
        "sizes": arguments(0, "--size", "2^10x64k", "--seed", "7", "--repeat=3"),
        "names": arguments(0, "--version", "naive", "--version=tiled", "--quick", "--no-limits"),
        "unknown": arguments(0, "--version", "tield"), "help": arguments(0, "--help"),
        "list": arguments(0, "--list"), "nothing": arguments(1, ""),
        "cpu": arguments(1, "--wave", "64", "--devices", "2", "--order", "random:5", "--guard", "exact"),
        "gpu": arguments(2, "--wave", "32"), "large": arguments(0, "--size", "2^63x2^63"),
        "train": arguments(0, "--epochs", "2", "--batch", "8", "--lr", "1e-3", "--optimizer", "adam"),
        "files": arguments(0, "--checkpoint", "F", "--json", "J", "--show", "P.png"),
        "evaluate": arguments(0, "--evaluate", "F"), "resume": arguments(0, "--resume", "--checkpoint", "F"),
        "data": arguments(0, "--data", "D", "--prompt", "To be"),
    }


def printable() -> dict[str, bytes]:
    return {"ascii": b"a line", "escape": b"\x1b[2J\x07\n\x7f", "utf8": "\u00e9\u714e\U0001f375".encode(),
            "steers": "\u202e\u200b\u2028\ufeff\u0085".encode(), "bytes": b"\xff\xc0\x80\xed\xa0\x80\xf4\x90"}


def output_file() -> dict[str, bytes]:
    return {"dead": b"F.2147483646.partial", "init": b"F.1.partial", "large": b"F.99999999999.partial",
            "no_number": b"F.x.partial", "empty": b"F..partial", "other_file": b"G.2147483646.partial",
            "longer": b"F.2147483646.partial.txt"}


MAKERS = [idx, mnist_data, npy, safetensors, checkpoint, checkpoint_sales, checkpoint_shakespeare, sales,
          shakespeare_text, vocabulary, options, printable, output_file]


def main() -> None:
    for maker in MAKERS:
        folder = CORPUS / maker.__name__
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in maker().items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
