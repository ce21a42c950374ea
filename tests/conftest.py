"""What every test stands on: checked shapes, one thread, no cache but its own."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import jaxtyping
import pytest
from checked_shapes import check_in
from composed_once import composed_once

# before anything of ours is imported
check_in(
    "translate.attention", "translate.models", "translate.search", "translate.extras.patterns",
    "translate.extras.flex",
)  # fmt: skip

# A busy machine makes any example slow: what hangs is stopped by pytest-timeout. Each run of the
# tests draws others, so that half of the usual number is enough for one.
hypothesis.settings.register_profile("patient", deadline=None, max_examples=50)
hypothesis.settings.load_profile("patient")

ROOT = Path(__file__).resolve().parents[1]
LAYERS = {"attention", "models", "search"}  # where the tests of shapes are


def pytest_configure(config: pytest.Config) -> None:
    """Two test processes on two cores: more threads would only wait for each other.

    And Ctrl-C means what it does at a terminal: a shell's background jobs begin deaf to it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before a test imports ONNX Runtime by itself
    if "PYTEST_XDIST_WORKER" not in os.environ:  # which has that of its controller
        # before a test's module is imported, with which Matplotlib settles where its cache is
        folder = tempfile.TemporaryDirectory(prefix="matplotlib-")
        os.environ["MPLCONFIGDIR"] = folder.name
        config.add_cleanup(folder.cleanup)
    if os.environ.get("TEST_DEVICE") == "second":
        from second_device import second_device

        device = ExitStack()
        device.enter_context(second_device())
        config.add_cleanup(device.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What modules and collected tests are made of stays: no search for garbage goes through it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _composed_once() -> Iterator[None]:
    with composed_once():
        yield


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """What a test draws without a seed of its own depends on no test before it."""
    import torch

    if torch.cuda.is_available() or "TEST_DEVICE" in os.environ:
        torch.manual_seed(0)
    else:  # the same, which notes down no stack for each device that there is not
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from, or left in, the caches of whoever runs the tests."""
    cache = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("TRANSLATE_CACHE", str(cache))
    monkeypatch.setenv("HF_HOME", str(cache / "huggingface"))


@pytest.fixture(autouse=True)
def _checked_in_layers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole runs go through the same calls again and again; checks are a third of their time."""
    checked = request.path.parent.name in LAYERS and "unchecked" not in request.keywords
    if not checked and "checked" not in request.keywords:
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Corpora that may not be shipped with the project; without them a test is skipped."""
    folder = Path(os.environ.get("TRANSLATE_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder} (TRANSLATE_SHARED_DATA names another place)")
    return folder
