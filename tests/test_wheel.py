"""The installed wheel works where there is no checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_wheel_carries_its_configuration_and_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        templates = {name for name in archive.namelist() if "/templates/" in name}
        assert {Path(name).stem for name in templates} >= {"attention", "comparison", "evaluation"}
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import translate; "
        f"assert translate.__file__.startswith({str(site)!r}), translate.__file__; "
        "from translate.cli.main import main; sys.argv[0] = 'translate'; main()"
    )
    arguments = ["prepare", "data=toy", "data.train=50", "data.dev=5", "data.test=5",
                 "tokenizer=word", f"cache={tmp_path / 'cache'}"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "50" in done.stdout
