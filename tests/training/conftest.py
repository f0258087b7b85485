import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Problems here are tiny: a second thread costs more than it brings, above all beside other test processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
