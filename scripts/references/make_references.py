#!/usr/bin/env python3
"""Writes the NumPy references that the tests compare with: make_references.py FOLDER

Every array becomes FOLDER/<step>_<array>.npy: steps/<step>.py has a function references() that returns
them by name. Inputs are float32, from fixed seeds; results are float64, computed in double precision from
those float32 inputs. The tests read them through common/npy.h; CTest runs this script as a fixture.
"""

import argparse
import importlib
import os
import sys
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("make_references.py needs NumPy: pip install -r scripts/requirements.txt")

STEPS = sorted(path.stem for path in Path(__file__).with_name("steps").glob("*.py"))


def save(path, array):
    """Under a temporary name first, so that a reader never finds half an array."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            np.save(file, array)
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to write; made if it is not there")
    folder = parser.parse_args().folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for step in STEPS:
            for name, array in importlib.import_module(f"steps.{step}").references().items():
                if not np.all(np.isfinite(array)):
                    sys.exit(f"make_references.py: {step}_{name} is not finite")
                save(folder / f"{step}_{name}.npy", array)
    except OSError as error:
        sys.exit(f"make_references.py: {error}")


if __name__ == "__main__":
    main()
