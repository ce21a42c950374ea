from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from translate import search
from translate.errors import UserError
from translate.search.constraints import NO_RULES

CONF = Path(__file__).parents[2] / "conf"


def node(kind: str) -> dict:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(f"search/{kind}"))["search"]


def test_every_kind_has_its_config() -> None:
    others = {"base", "longer"}  # what all have, and a beam of the guard's
    assert {path.stem for path in (CONF / "search").glob("*.yaml")} == {*search.KINDS, *others}


@pytest.mark.parametrize("kind", search.KINDS)
def test_every_config_builds_its_search(kind: str) -> None:
    built = search.build(node(kind))
    assert type(built) is search.KINDS[kind]
    assert built.rules == NO_RULES
    old = {key: value for key, value in node(kind).items() if key != "rules"}
    assert search.build(old).rules == NO_RULES


def test_rules_are_checked_with_the_search() -> None:
    wrong = {"min_length": -1, "no_repeat_ngram_siez": 3, "repetition_penalty": 0.5, "banned": "x"}
    with pytest.raises(UserError) as error:
        search.build(node("greedy") | {"rules": wrong})
    for line in (
        "search.rules.min_length = -1: must be greater than or equal to 0",
        "did you mean search.rules.no_repeat_ngram_size?",
        "search.rules.repetition_penalty = 0.5: must be greater than or equal to 1",
        "search.rules.banned = 'x'",
        "search.rules.no_repeat_ngram_size is missing",
    ):
        assert line in str(error.value)


def test_what_cannot_be_built_is_named() -> None:
    with pytest.raises(UserError, match=r"search\.kind = 'baem': no such kind; did you mean beam"):
        search.build({"kind": "baem"})
    with pytest.raises(UserError, match=r"search.max_length_offset = 0"):
        search.build({"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 0})
    with pytest.raises(UserError, match=r"search.beam_size is not a key"):
        search.build(
            {"kind": "greedy", "max_length_ratio": 1.0, "max_length_offset": 1, "beam_size": 4}
        )
