"""Code in an interpreter of its own."""

import os
import subprocess
import sys


def run_python(*arguments, cwd=None, **environment):
    """Standard output of Python with these arguments, such as ``"-c", code``, and additions to the environment."""
    command = [sys.executable, *map(str, arguments)]
    how = {"capture_output": True, "text": True, "timeout": 250, "env": os.environ | environment}
    done = subprocess.run(command, cwd=cwd, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
