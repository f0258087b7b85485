import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread(one_thread):
    """All tests of this folder are tiny."""
