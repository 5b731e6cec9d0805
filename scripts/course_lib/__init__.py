"""The parts of scripts/course. Standard library only: it must start on a bare python3."""
