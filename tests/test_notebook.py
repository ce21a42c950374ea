"""The notebook for students runs from first cell to last, and was run before it was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from translate.models.head import NO_ATTENTION

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "docs" / "notebook" / "attention.ipynb"


def outputs(notebook: Any) -> list[Any]:
    return [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]


def pictures(notebook: Any) -> int:
    return sum("image/png" in out.get("data", {}) for out in outputs(notebook))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_every_cell_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSLATE_NOTEBOOK_STEPS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kept = pictures(notebook)
    NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    assert pictures(notebook) == kept


def test_the_kept_outputs_are_of_a_whole_run() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert pictures(notebook) == 3
    assert not [out for out in outputs(notebook) if out.output_type == "error"]
    said = "".join(out.get("text", "") for out in outputs(notebook))
    assert f"rnn_none: {NO_ATTENTION}" in said  # as it is said today
    assert not [out for out in outputs(notebook) if out.get("name") == "stderr"]
    assert "/tmp" not in NOTEBOOK.read_text("utf-8")
