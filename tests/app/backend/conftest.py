"""One backend per transport for all contract tests: a model's process takes ten CPU seconds to start."""

import pytest

from app.backend.client import RemoteBackend
from app.backend.limits import Limits
from tests.app.backend.helpers import wait_until
from tests.saved import save_tiny

ANALYSES = "tests.app.backend.suite:ANALYSES"


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return str(save_tiny("llama", tmp_path_factory.mktemp("tiny") / "llama"))


@pytest.fixture(scope="package")
def model(folder):
    from analyses.model import load_model

    return load_model(folder)


@pytest.fixture(scope="package", params=["thread", "process"])
def backend(request, folder, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))  # the profile is measured here
        if request.param == "process":
            patch.setenv("STREAMSCOPE_TEST_CHILD", "1")
        limits = Limits(seconds=1e5, user_seconds=1e6)
        made = RemoteBackend(request.param, analyses=ANALYSES, source=folder, limits=limits)
        wait_until(lambda: made.status().model or made.status().error)
        assert made.status().error == ""
        yield made
        made.close()
