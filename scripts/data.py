#!/usr/bin/env python3
"""Downloads the data sets of the course into $COURSE_DATA, or into data where that is not set.

scripts/data.py            all of them: 13 MB
scripts/data.py mnist      one of them
scripts/data.py --list     what there is, and where it comes from
scripts/data.py --check    whether the files are there and right; downloads nothing

A file that is there and right is left alone, so calling this again goes on where it stopped. What
is compared is the SHA-256 of the contents: for a .gz file those behind the compression, because
some copies of the same images have been compressed anew. The sales are made, not downloaded:
scripts/make_sales.py.

Exit codes: 0 all is well, 1 --check found a file missing or damaged, 2 the request must change, 3 a
file could not be downloaded or written, 130 interrupted.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):
    sys.exit("data: Python 3.10 or newer is needed, this is " + sys.version.split()[0])

import argparse
import gzip
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from course_lib.arguments import Parser
from course_lib.errors import FAILED, INTERRUPTED, MISSING, OK, USAGE, CourseError
from course_lib.terminal import Progress

CHUNK = 1 << 18  # bytes read at once
STALL_S = 20  # a mirror that sends nothing for so long is left
TOTAL_S = 600  # and so is one that has not sent the whole file by then


@dataclass(frozen=True)
class DataFile:
    path: str  # below the data folder
    size: int  # of the contents, in bytes; they are compressed where the path ends in .gz
    sha256: str  # of the contents
    urls: tuple[str, ...]  # tried in this order


@dataclass(frozen=True)
class DataSet:
    name: str
    about: str
    files: tuple[DataFile, ...]


def mnist_file(name: str, size: int, sha256: str) -> DataFile:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://azureopendatastorage.blob.core.windows.net/mnist/",
        "https://sagemaker-sample-files.s3.amazonaws.com/datasets/image/MNIST/",
    )
    return DataFile(f"mnist/{name}", size, sha256, tuple(mirror + name for mirror in mirrors))


DATA_SETS = (
    DataSet(
        "mnist",
        "70 000 handwritten digits, 28 x 28 pixels each (LeCun, Cortes, Burges)",
        (
            mnist_file("train-images-idx3-ubyte.gz", 47040016,
                       "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            mnist_file("train-labels-idx1-ubyte.gz", 60008,
                       "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
            mnist_file("t10k-images-idx3-ubyte.gz", 7840016,
                       "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            mnist_file("t10k-labels-idx1-ubyte.gz", 10008,
                       "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        ),
    ),
    DataSet(
        "tiny_shakespeare",
        "a million letters of Shakespeare's plays (Karpathy, char-rnn)",
        (
            DataFile(
                "tiny_shakespeare.txt", 1115394,
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
                 "input.txt",
                 "https://raw.githubusercontent.com/jcjohnson/torch-rnn/master/data/"
                 "tiny-shakespeare.txt",
                 "https://raw.githubusercontent.com/dmlc/web-data/master/mxnet/tinyshakespeare/"
                 "input.txt"),
            ),
        ),
    ),
)


class MirrorError(Exception):
    """This mirror does not have the file; the next one may."""


def find_fault(path: Path, file: DataFile) -> str:
    """What is wrong with what stands at `path`, in a word or two; empty if it is the file."""
    digest, size = hashlib.sha256(), 0
    open_contents = gzip.open if file.path.endswith(".gz") else open
    try:
        with open_contents(path, "rb") as contents:
            while chunk := contents.read(CHUNK):
                size += len(chunk)
                if size > file.size:
                    return "too long"
                digest.update(chunk)
    except FileNotFoundError:
        return "missing"
    except EOFError:  # within the compressed data
        return "truncated"
    except (gzip.BadGzipFile, zlib.error):
        return "not a gzip file, or a damaged one"
    if size < file.size:
        return "truncated"
    return "" if digest.hexdigest() == file.sha256 else "damaged: its SHA-256 is another one"


def read_url(url: str, limit: int) -> Iterator[bytes]:
    """The bytes behind `url`, at most `limit`. Raises MirrorError where they do not come."""
    deadline = time.monotonic() + TOTAL_S
    request = urllib.request.Request(url, headers={"User-Agent": "gpu-course"})
    try:
        with urllib.request.urlopen(request, timeout=STALL_S) as response:
            while chunk := response.read(CHUNK):
                limit -= len(chunk)
                if limit < 0:
                    raise MirrorError("sends more than the file has")
                if time.monotonic() > deadline:
                    raise MirrorError(f"took more than {TOTAL_S} s")
                yield chunk
    except urllib.error.HTTPError as error:
        raise MirrorError(f"HTTP {error.code}") from error
    except urllib.error.URLError as error:
        raise MirrorError(f"{getattr(error.reason, 'strerror', '') or error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise MirrorError(f"{error or type(error).__name__}") from error


def download_from(url: str, file: DataFile, path: Path) -> None:
    """Downloads into a file beside `path`, and gives it that name once it is complete and right.
    Raises MirrorError, or OSError where the disk is at fault."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    progress = Progress(file.path)
    received = 0
    try:
        with open(partial, "wb") as out:
            # Compression adds a little to what cannot be compressed.
            for chunk in read_url(url, file.size + file.size // 100 + 1024):
                out.write(chunk)
                received += len(chunk)
                progress.update(f"{received / 1e6:.1f} MB")
            out.flush()
            os.fsync(out.fileno())
        if fault := find_fault(partial, file):
            raise MirrorError(f"what it sends is {fault}")
        os.replace(partial, path)
        progress.finish(f"{file.path}  {received / 1e6:.1f} MB from {urlsplit(url).netloc}")
    finally:
        progress.finish()
        partial.unlink(missing_ok=True)


def download(file: DataFile, folder: Path) -> None:
    """Brings one file from the first mirror that has it. Raises CourseError where none does."""
    path = folder / file.path
    fault = find_fault(path, file)
    if not fault:
        print(f"{file.path}  is there", flush=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in file.urls:
        try:
            return download_from(url, file, path)
        except MirrorError as error:
            reasons.append(f"{urlsplit(url).netloc}: {error}")
            print(f"{file.path}  {reasons[-1]}", flush=True)
    raise CourseError(f"{path} is {fault}, and no mirror has it: {'; '.join(reasons)}", MISSING)


def list_sets(sets: tuple[DataSet, ...]) -> None:
    for data_set in sets:
        print(f"{data_set.name}: {data_set.about}")
        for file in data_set.files:
            print(f"  {file.path}  {file.size / 1e6:.1f} MB of contents")
            for url in file.urls:
                print(f"    {url}")


def check_sets(sets: tuple[DataSet, ...], folder: Path) -> int:
    faults = 0
    for file in (file for data_set in sets for file in data_set.files):
        fault = find_fault(folder / file.path, file)
        faults += bool(fault)
        print(f"{file.path}  {fault or 'ok'}")
    return FAILED if faults else OK


def select_sets(names: list[str]) -> tuple[DataSet, ...]:
    known = {data_set.name: data_set for data_set in DATA_SETS}
    for name in names:
        if name not in known:
            raise CourseError(f"there is no data set '{name}'; there are {', '.join(known)}", USAGE)
    return tuple(known[name] for name in dict.fromkeys(names)) or DATA_SETS


def main(arguments: list[str]) -> int:
    title, _, details = (__doc__ or "").partition("\n")
    parser = Parser(prog="data", description=title, epilog=details,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="DATA_SET", help="which ones; default: all")
    parser.add_argument("--list", action="store_true", help="list the files and their mirrors")
    parser.add_argument("--check", action="store_true", help="check the files, download nothing")
    options = parser.parse_args(arguments)
    folder = Path(os.environ.get("COURSE_DATA") or "data")
    try:
        sets = select_sets(options.sets)
        if options.list:
            list_sets(sets)
            return OK
        if options.check:
            return check_sets(sets, folder)
        for file in (file for data_set in sets for file in data_set.files):
            download(file, folder)
        return OK
    except CourseError as error:
        line, code = str(error), error.code
    except OSError as error:
        line, code = f"{error.filename or folder}: {error.strerror or error}", MISSING
    except KeyboardInterrupt:
        line, code = "interrupted; what is complete stays", INTERRUPTED
    sys.stdout.flush()
    print(f"data: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
