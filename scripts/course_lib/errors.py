"""One clear line for what went wrong, and the exit code that goes with it."""

OK, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130


class CourseError(Exception):
    """What cannot be done, said in one line. `code` is the exit code: USAGE where the request must
    change, MISSING where the machine lacks something (a package, the network, a device), FAILED
    where a build or a program failed. `details` is printed above the line, e.g. a compiler's
    output."""

    def __init__(self, line: str, code: int, details: str = ""):
        super().__init__(line)
        self.code = code
        self.details = details
