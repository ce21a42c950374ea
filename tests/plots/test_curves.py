"""Learning curves from the metrics.csv of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from translate.errors import UserError
from translate.plots import curves as curves_module
from translate.plots.curves import learning_curves, read_curves

METRICS = """epoch,step,train/loss,dev/loss,dev/bleu,lr-AdamW
0,10,9.5,,,0.001
0,20,nan,,,0.001
0,20,,8.5,1.25,
1,40,7.0,,,0.002
1,40,,6.5,12.5,
1,60,,6.75,11.5,
"""


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    path.write_text(METRICS, encoding="utf-8")
    return path


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text("utf-8"))


def test_empty_and_non_finite_cells_are_left_out(metrics: Path) -> None:
    curves = read_curves(metrics)
    assert curves["train/loss"] == [(11, 9.5), (41, 7.0)], "the file counts steps from 0"
    assert curves["dev/loss"] == [(21, 8.5), (41, 6.5), (61, 6.75)]
    assert curves["dev/bleu"] == [(21, 1.25), (41, 12.5), (61, 11.5)]
    assert set(curves) == {"train/loss", "dev/loss", "dev/bleu", "lr-AdamW"}


def test_a_step_logged_again_counts_once_and_a_cut_row_not_at_all(metrics: Path) -> None:
    metrics.write_text(METRICS + "1,40,6.0,,,\n0,10,5.0,,\n2,80,1.", encoding="utf-8")
    assert read_curves(metrics)["train/loss"] == [(11, 5.0), (41, 6.0)]


def test_both_panels_name_their_best_dev_value(metrics: Path, tmp_path: Path) -> None:
    learning_curves(metrics, tmp_path / "curves.svg")
    found = texts(tmp_path / "curves.svg")
    for text in ("loss", "BLEU", "train/loss", "dev/loss", "dev/bleu", "step", "6.50", "12.5"):
        assert text in found


def test_losses_of_training_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(
        "step,train/loss,train/guided_loss\n1,2.0,1.0\n2,1.0,0.5\n", encoding="utf-8"
    )
    learning_curves(tmp_path / "metrics.csv", tmp_path / "curves.svg")
    drawn = re.findall(
        r"style=\"(fill: none;[^\"]*#9aa3ad; stroke-width: 0.9[^\"]*)",
        (tmp_path / "curves.svg").read_text("utf-8"),
    )
    assert len(set(drawn)) == 2


def test_steps_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn: list[Axes] = []
    monkeypatch.setattr(curves_module, "axis_style", drawn.append)
    file = tmp_path / "metrics.csv"
    file.write_text("step,dev/bleu\n" + "".join(f"{step},{step}.5\n" for step in (1, 2, 3)))
    learning_curves(file, tmp_path / "a.svg")
    (axes,) = drawn
    ticks = [float(tick) for tick in axes.get_xticks()]
    assert [tick for tick in ticks if 1 <= tick <= 3] == [1, 2, 3]
    assert all(tick.is_integer() for tick in ticks)


def test_a_run_without_bleu_yet_has_one_panel(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("step,train/loss\n1,2.0\n", encoding="utf-8")
    learning_curves(tmp_path / "metrics.csv", tmp_path / "curves.svg")
    assert "BLEU" not in texts(tmp_path / "curves.svg")


def test_the_same_metrics_give_the_same_png(metrics: Path, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        learning_curves(metrics, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert 20_000 < (tmp_path / "a.png").stat().st_size < 200_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"step,train/loss\n1,2\xff\n", "is damaged .*: restore a copy, or move it away"),
        (None, "No such file or directory; give the metrics.csv of a run"),
        ("", "has no `step` column"),
        ("a,b\n1,2\n", "has no `step` column"),
        ("step,train/loss\n", "holds no loss and no BLEU"),
        ("step,train/loss\n1,nan\n", "holds no loss and no BLEU"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    path = tmp_path / "metrics.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        learning_curves(path, tmp_path / "curves.png")
