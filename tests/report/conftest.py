"""A page of the report in a real browser."""

import pytest


@pytest.fixture
def opened(chromium, page):
    """The browser with the module's page, which fetches nothing, runs no foreign script and reports no error."""
    chromium.open(page)
    yield chromium
    assert chromium.troubles() == []
    assert [address for address in chromium.requests() if not address.startswith(("file:", "about:"))] == []
    assert not chromium.run("'hacked' in window")
