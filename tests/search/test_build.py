from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from translate import search
from translate.errors import UserError

CONF = Path(__file__).parents[2] / "conf" / "search"


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_builds_its_search(path: Path) -> None:
    node = yaml.safe_load(path.read_text())
    assert isinstance(search.build(**node), search.KINDS[path.stem])


def test_what_cannot_be_built_is_named() -> None:
    with pytest.raises(UserError, match=r"search.kind = 'baem' .* did you mean beam"):
        search.build("baem")
    with pytest.raises(UserError, match=r"search.max_length_offset = 0"):
        search.build("greedy", max_length_ratio=1.0, max_length_offset=0)
    with pytest.raises(UserError, match=r"search.beam_size is not a key"):
        search.build("greedy", max_length_ratio=1.0, max_length_offset=1, beam_size=4)
