"""Code in an interpreter of its own, and workers in threads."""

import os
import subprocess
import sys
import threading


def run_python(*arguments, cwd=None, **environment):
    """Standard output of Python with these arguments, such as ``"-c", code``, and additions to the environment."""
    command = [sys.executable, *map(str, arguments)]
    how = {"capture_output": True, "text": True, "timeout": 250, "env": os.environ | environment}
    done = subprocess.run(command, cwd=cwd, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class ThreadedSum:
    """An all-reduce between threads: adds up in the order of ranks, as a process group does."""

    def __init__(self, count):
        self.barrier, self.slots = threading.Barrier(count, timeout=30), [None] * count

    def of(self, rank):
        def all_reduce(tensor):
            self.slots[rank] = tensor.clone()
            self.barrier.wait()
            total = sum(self.slots[1:], self.slots[0])
            self.barrier.wait()
            tensor.copy_(total)

        return all_reduce
