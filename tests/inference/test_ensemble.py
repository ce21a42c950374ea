from __future__ import annotations

from dataclasses import replace

import pytest

from translate.errors import UserError
from translate.inference import bundle
from translate.inference.bundle import together

GREEDY = {"kind": "greedy", "max_length_ratio": 2.0, "max_length_offset": 20}


@pytest.fixture
def save(tmp_path, make_model, options):
    def saved(name: str, kind: str, tokenizers) -> bundle.Bundle:
        rest = {key: value for key, value in options[kind].items() if key != "family"}
        bundle.save(
            tmp_path / name, family=options[kind]["family"], options=rest,
            model=make_model(kind, tokenizers), tokenizers=tokenizers, languages=("es", "en"),
            search=GREEDY, extra={},
        )  # fmt: skip
        return bundle.load(tmp_path / name)

    return saved


def test_families_may_differ(save, joint) -> None:
    bundles = [(kind, save(kind, kind, joint)) for kind in ("rnn_general", "transformer")]
    found = together(bundles)
    assert found.model.target_vocab_size == len(joint.target)
    assert not found.model.training
    assert found.tokenizers == bundles[0][1].tokenizers


def test_every_run_has_its_say(save, joint) -> None:
    bundles = [(kind, save(kind, kind, joint)) for kind in ("rnn_general", "transformer")]
    assert list(together(bundles).model.models) == [each.model for _, each in bundles]


@pytest.mark.parametrize(("source", "target"), [("en", "es"), ("es", "fr")])
def test_languages_may_not(save, joint, source: str, target: str) -> None:
    """A joint tokenizer may be the same for all, so that nothing else tells them apart."""
    one = save("one", "transformer", joint)
    turned = {"source_language": source, "target_language": target}
    other = replace(one, config=one.config.model_copy(update=turned))
    told = f"other translates {source} to {target}, but one translates es to en"
    with pytest.raises(UserError, match=told):
        together([("one", one), ("other", other)])
    tagged = replace(one, config=one.config.model_copy(update={"tag": "<2en>"}))
    together([("one", tagged), ("other", other)])


def test_tokenizers_may_not(save, joint, separate) -> None:
    one = save("one", "rnn_general", joint)
    other = bundle.Bundle(
        one.model,
        separate,
        one.config.model_copy(update={"tokenizers": {"source": "s", "target": "t"}}),
        one.weights_sha256,
    )
    with pytest.raises(UserError) as error:
        together([("one", one), ("other", other)])
    assert f"SHA-256 {one.config.tokenizers['source']} and s)" in str(error.value)
    assert "one and other have different source tokenizers" in str(error.value)
