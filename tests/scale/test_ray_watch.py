"""The watch over workers that hang, in processes of their own."""

import subprocess
import sys

import pytest

START = """
import time
from crcen.scale.ray.worker import Watch
watch = Watch(1.0)
watch.moved()
"""


def outcome(rest):
    done = subprocess.run([sys.executable, "-c", START + rest], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_what_hangs_is_ended_and_its_log_says_where():
    status, _, log = outcome("import threading\nthreading.Lock().acquire()\nthreading.Event().wait()")
    assert status == 1
    assert "Timeout" in log
    assert "in wait" in log


@pytest.mark.parametrize(
    "rest",
    [
        "for _ in range(20):\n    time.sleep(0.1)\n    watch.moved()",
        "with watch.paused():\n    time.sleep(2.0)",
        "watch.end()\ntime.sleep(2.0)",
    ],
)
def test_what_moves_or_waits_for_others_or_is_done_lives_on(rest):
    # Ends at once: unloading torch on a busy machine takes longer than the watch waits.
    ending = "\nprint('alive', flush=True)\nimport os\nos._exit(0)"
    assert outcome(rest + ending)[:2] == (0, "alive\n")


def test_the_time_counts_again_after_a_pause():
    status, out, _ = outcome("with watch.paused():\n    time.sleep(1.5)\nprint('alive', flush=True)\ntime.sleep(60)")
    assert (status, out) == (1, "alive\n")
