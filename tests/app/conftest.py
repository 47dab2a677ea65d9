"""Two backends in place of the lazy one: without a model, and with a tiny one."""

import pytest
from streamlit import config

from app.backend import use_backend
from app.backend.client import RemoteBackend
from app.backend.protocol import Who
from tests.app.backend.helpers import wait_until
from tests.app.stub import StubBackend
from tests.saved import save_tiny


@pytest.fixture
def backend():
    stub = StubBackend()
    use_backend(stub)
    saved = config.get_option("browser.gatherUsageStats")
    config.set_option("browser.gatherUsageStats", False)  # AppTest reads no configuration file
    yield stub
    config.set_option("browser.gatherUsageStats", saved)
    use_backend(None)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    return save_tiny("llama", tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="module")
def real_backend(tiny_folder, tmp_path_factory):
    """A backend with a tiny random model on threads of this process: pages that show computed results need real ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = RemoteBackend("thread", source=str(tiny_folder))
        wait_until(lambda: made.status().model or made.status().error)
        assert made.status().error == ""
        yield made
        made.close()


@pytest.fixture
def real(real_backend, monkeypatch):
    monkeypatch.setattr("app.backend._kept", [real_backend])  # put in its place, and not ended with the test
    monkeypatch.setattr("app.ui.run.who", lambda slot: Who("somebody", slot))  # AppTest's session has no id
    monkeypatch.setattr("app.ui.stream.who", lambda slot: Who("somebody", slot))
    monkeypatch.setattr("app.ui.parts.who", lambda slot: Who("somebody", slot))
    saved = config.get_option("browser.gatherUsageStats")
    config.set_option("browser.gatherUsageStats", False)
    yield real_backend
    config.set_option("browser.gatherUsageStats", saved)
