"""A node of the configuration against the class that reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from translate.config import Node, check, chosen, misnamed, problems
from translate.errors import UserError
from translate.wording import nearest


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: PositiveInt


class Model(Node):
    d_model: PositiveInt
    dropout: Annotated[float, Field(ge=0, lt=1)]
    norm: Literal["pre", "post"]
    size: PositiveInt | Literal["auto"]
    tied: bool
    inner: Inner
    path: Path | None
    pair: tuple[int, int]
    names: Sequence[str] = ()
    maybe: Inner | None = None
    several: dict[str, Inner] | None = None


GOOD: dict[str, Any] = {
    "d_model": 8,
    "dropout": 0.1,
    "norm": "pre",
    "size": "auto",
    "tied": True,
    "inner": {"depth": 1},
    "path": "some/where",
    "pair": [1, 2],
}


NESTED = "model.{0}dept is not a key; did you mean model.{0}depth?"


def test_a_text_that_is_not_utf_8_is_named_beside_other_problems() -> None:
    remedy = "must be UTF-8: rename the file or folder, or write the value so"
    assert found(path="caf\udce9", d_model=0) == [
        f"model.path = 'caf\\udce9': {remedy}",
        "model.d_model = 0: must be greater than 0",
    ]
    assert found(names=["a", "\udcff"]) == [f"model.names.1 = '\\udcff': {remedy}"]
    (line,) = found(several={"\udcff": {"depth": 1}})
    assert line == f"model.several.\\udcff = '\\udcff': {remedy}"


def found(**changes: Any) -> list[str]:
    return problems(Model, {**GOOD, **changes}, "model")


@pytest.mark.parametrize(
    "changes", [{}, {"dropout": 0}, {"size": 3}, {"path": None}, {"names": ["a"]}]
)
def test_a_right_node_has_no_problems(changes: dict[str, Any]) -> None:
    assert found(**changes) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"d_model": 0}, "model.d_model = 0: must be greater than 0"),
        ({"d_model": "8"}, "model.d_model = '8': must be a valid integer"),
        ({"d_model": 8.5}, "model.d_model = 8.5: must be a valid integer"),
        ({"d_model": True}, "model.d_model = True: must be a valid integer"),
        ({"dropout": 1}, "model.dropout = 1: must be less than 1"),
        ({"dropout": float("nan")}, "model.dropout = nan: must be a finite number"),
        ({"norm": "Pre"}, "model.norm = 'Pre': must be 'pre' or 'post'"),
        ({"size": "8"}, "model.size = '8': must be a valid integer or 'auto'"),
        ({"tied": 1}, "model.tied = 1: must be a valid boolean"),
        ({"inner": {"depth": 0}}, "model.inner.depth = 0: must be greater than 0"),
        ({"inner": {"depth": 1, "x": 2}}, "model.inner.x is not a key; choose from depth"),
        ({"maybe": {"depth": 1, "dept": 2}}, NESTED.format("maybe.")),
        ({"several": {"fr": {"depth": 1, "dept": 2}}}, NESTED.format("several.fr.")),
        ({"names": "a"}, "model.names = 'a': must be a list in brackets, such as [1,2]"),
        ({"pair": [1, 2.5]}, "model.pair.1 = 2.5: must be a valid integer"),
        ({"d_modle": 8}, "model.d_modle is not a key; did you mean model.d_model?"),
        ({"D_MODEL": 8}, "model.D_MODEL is not a key; did you mean model.d_model?"),
    ],
)
def test_a_problem_is_a_line_with_place_value_and_remedy(
    changes: dict[str, Any], line: str
) -> None:
    assert found(**changes) == [line]


@pytest.mark.parametrize("key", sorted(GOOD))
def test_every_key_must_be_given(key: str) -> None:
    values = {name: value for name, value in GOOD.items() if name != key}
    assert problems(Model, values, "model") == [f"model.{key} is missing"]
    assert found(inner={}) == ["model.inner.depth is missing"]


def test_all_problems_come_at_once() -> None:
    assert len(found(d_model=0, dropout=2, nrom="pre")) == 3


def test_a_rule_about_several_keys_names_the_node() -> None:
    class Length(BaseModel):
        steps: int | None

        @model_validator(mode="after")
        def _ends(self) -> Length:
            if self.steps is None:
                raise ValueError("has no end: set steps")
            return self

    assert problems(Length, {"steps": None}, "trainer") == ["trainer: has no end: set steps"]


def test_a_node_names_its_receiver() -> None:
    class Named(Model):
        kind: Literal["rnn"]

    receivers = {"rnn": Named, "transformer": Named}
    assert not misnamed("model", {"kind": "rnn"}, receivers)
    slip = ["model.kind = 'transformr': no such kind; did you mean transformer?"]
    assert misnamed("model", {"kind": "transformr"}, receivers) == slip
    assert chosen("model", {"kind": "transformr", "d_model": 0}, receivers) == slip
    (problem,) = chosen("model", {"family": 3}, receivers, key="family")
    assert problem == "model.family = 3: no such family; choose from rnn, transformer"
    node = {"kind": "rnn", "d_model": 0}
    assert chosen("model", node, receivers) == problems(Named, node, "model")


def test_nearest_suggests_or_lists() -> None:
    assert nearest("transformr", ["rnn", "transformer"]) == "; did you mean transformer?"
    assert nearest("xyz", ["rnn", "transformer"]) == "; choose from rnn, transformer"
    assert nearest("xyz", []) == "; nothing can be given here"


def test_check_lists_every_problem_once() -> None:
    check([])
    with pytest.raises(UserError, match=r"^a is wrong$"):
        check(["a is wrong", "a is wrong"])
    with pytest.raises(UserError, match=r"^2 problems\n  a\n  b$"):
        check(["a", "b"])


class Cat(Node):
    kind: Literal["cat"]
    lives: PositiveInt
    place: ClassVar[str] = "animal"

    def contradictions(self) -> Iterator[str]:
        if self.lives > 9:
            yield f"animal.lives = {self.lives}: set animal.lives=9"


class Dog(Node):
    kind: Literal["dog"]
    tricks: PositiveInt


class House(Node):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("pet", "line"),
    [
        ({"kind": "cat", "lives": 0}, "house.pet.lives = 0: must be greater than 0"),
        ({"kind": "cat"}, "house.pet.lives is missing"),
        (
            {"kind": "dog", "tricks": 1, "trick": 2},
            "house.pet.trick is not a key; did you mean house.pet.tricks?",
        ),
        ({"kind": "cow"}, "house.pet.kind = 'cow': no such kind; choose from cat, dog"),
        ({"lives": 3}, "house.pet.kind is missing"),
        ({"kind": "cat", "lives": 10}, "house.pet.lives = 10: set house.pet.lives=9"),
    ],
)
def test_a_node_in_a_node_may_be_one_of_several_kinds(pet: dict[str, Any], line: str) -> None:
    assert problems(House, {"pet": pet}, "house") == [line]
