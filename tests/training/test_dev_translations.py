"""Dev BLEU, by which the best checkpoint is chosen, is that of the target language."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from translate.training import dev_translations
from translate.training.dev_translations import DevTranslations


@pytest.mark.parametrize(("language", "tokenize"), [("zh", "zh"), ("de", "13a")])
def test_dev_bleu_goes_by_the_target_language(
    language: str, tokenize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rows:
        def __getitem__(self, which: slice) -> dict[str, list[Any]]:
            return {
                "source": ["a new book"],
                "references": [["他在北京买了一本好书。 A new book!"]],
            }

    said = "他在北京买了一本新书。 A new book."
    saved: list[int] = []
    corpus: Any = SimpleNamespace(dev=Rows(), target_language=language, tokenizers=None)
    nothing: Any = None
    dev = DevTranslations(
        corpus=corpus, search=nothing, config={}, run=tmp_path,
        sentences=1, samples=0, tokens_per_batch=8,
    )  # fmt: skip
    stand_in = SimpleNamespace(translate=lambda sources: [said])
    monkeypatch.setattr(dev_translations, "Translator", lambda *args, **kwargs: stand_in)
    monkeypatch.setattr(dev, "_save_bundle", lambda model, step: saved.append(step))
    trainer: Any = SimpleNamespace(global_step=7)
    task: Any = SimpleNamespace(model=SimpleNamespace(train=lambda: None), device="cpu")
    expected = BLEU(tokenize=tokenize).corpus_score([said], [dev.references[0]]).score
    assert dev._translate(trainer, task) == pytest.approx(expected)
    assert saved == [7]
