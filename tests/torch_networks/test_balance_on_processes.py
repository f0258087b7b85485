"""balance_ on several processes: each has a share of the rows, all end with the bias of all rows."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import crcen
from crcen.torch import balance_

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")


def problem(columns):
    """A network, rows and a weighting, the same in every process."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Dropout(0.5), nn.Linear(3, columns))
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(90) % max(columns, 2) * (torch.rand(90, generator=generator) < 0.5)
    x = torch.randn(90, 4, generator=generator) + y[:, None]
    return net, x, y, [1.0, 3.0, 9.0] if columns == 3 else crcen.CostRatio(7)


# What each process runs: its number and the port come by arguments; it prints its answer to each case.
PROGRAM = """
import json, sys
import torch
from torch import distributed, nn
import crcen
from crcen.torch import balance_
from test_balance_on_processes import problem

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{sys.argv[2]}", rank=rank, world_size=2)
answers = {}
for case in ("shares", "classes", "wrapped", "empty", "one"):
    net, x, y, weighting = problem(3 if case == "classes" else 1)
    own = slice(0, 50) if rank == 0 else slice(50, 90)
    batches = list(zip(x[own].split(16), y[own].split(16)))
    said = ""
    try:
        if case == "one":
            found = balance_(net, [(x, y)], weighting, distributed=False) if rank == 0 else None
        elif case == "wrapped":
            found = balance_(nn.parallel.DistributedDataParallel(net), batches, weighting, bias="module.3.bias")
        else:
            found = balance_(net, [] if case == "empty" and rank else batches, weighting)
    except crcen.exceptions.InvalidInput as error:
        said, found = str(error), None
    answers[case] = [net[3].bias.tolist(), said, None if found is None else found.residual]
distributed.barrier()
distributed.destroy_process_group()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": Path(__file__).parent}
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), port], **how) for rank in range(2)]
    try:
        said = [one.communicate(timeout=200) for one in started]
    finally:
        for one in started:
            one.kill()
    for one, (_, errors) in zip(started, said, strict=True):
        assert one.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


def alone(columns):
    net, x, y, weighting = problem(columns)
    balance_(net, [(x, y)], weighting)
    return net[3].bias.tolist()


@pytest.mark.parametrize(("case", "columns"), [("shares", 1), ("classes", 3), ("wrapped", 1)])
def test_all_processes_end_with_the_bias_of_all_rows(answers, case, columns):
    first, second = (each[case] for each in answers)
    assert first[0] == second[0]
    assert first[0] == pytest.approx(alone(columns), abs=1e-6)
    assert first[1:] == second[1:]
    assert first[2] < 1e-7


def test_process_without_rows_stops_all_and_one_process_may_have_all_rows(answers):
    first, second = (each["empty"] for each in answers)
    assert "process 1 has no rows to balance over" in first[1]
    assert "empty loader" in second[1]
    assert first[0] == second[0]
    first, second = (each["one"] for each in answers)
    assert first[0] == pytest.approx(alone(1), abs=1e-6)
    assert second[2] is None
