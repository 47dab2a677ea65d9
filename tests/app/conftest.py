"""A backend without a model, in place of the lazy one."""

import pytest
from streamlit import config

from app.backend import use_backend
from tests.app.stub import StubBackend


@pytest.fixture
def backend():
    stub = StubBackend()
    use_backend(stub)
    saved = config.get_option("browser.gatherUsageStats")
    config.set_option("browser.gatherUsageStats", False)  # AppTest reads no configuration file
    yield stub
    config.set_option("browser.gatherUsageStats", saved)
    use_backend(None)
