"""The words of the toy language: readable tables beside this file, loaded once.

Content words stand in four tab-separated tables, the closed classes below. Classes of nouns are one
letter each and say which words go together: `p` person, `a` animal, `f` food, `d` drink, `t`
text, `o` object, `c` what opens, `w` what is worn, `l` place.

Conventions of the tables:

* nouns: the plural is an ending (`e`, `nen`), `¨` for an umlaut (`¨er`), `-` for no change,
  `=Museen` in full, `0` for a mass noun; `!` marks the weak declension (der Junge, den Jungen).
* verbs: `auf machen` has a separable particle, `sich` is reflexive, `an:acc` is a preposition with
  its case; empty forms are regular. Of the English words the first is the verb, the rest follows.
* adjectives: `+` a regular comparative, `-` none, `attributive` only before a noun; an empty
  English comparative takes `more`.
* adverbs: the words of the two sides correspond one by one; `_` joins words to one unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Case = Literal["nom", "acc", "dat", "gen"]
Number = Literal["sg", "pl"]
Role = Literal["subject", "object"]
Gender = Literal["m", "f", "n"]
Tense = Literal["present", "past", "perfect", "pluperfect", "future"]

GENDERS: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}
CASES: tuple[Case, ...] = ("nom", "acc", "dat")
NAMES = (
    "Anna", "Peter", "Maria", "Paul", "Lena", "Max", "Julia", "Thomas", "Sophie", "Felix", "Emma",
    "Jonas",
)  # fmt: skip


# Entries compare and hash by identity: each stands once in the lexicon, and caches stay fast.
@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; `plural` is the code of the table, `english_plural` is empty when regular."""

    german: str
    gender: Gender
    plural: str
    english: str
    english_plural: str
    classes: frozenset[str]

    @property
    def mass(self) -> bool:
        """True if it has no plural and no indefinite article."""
        return self.plural == "0"


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb with its frame: which arguments it takes, and of which classes."""

    lemma: str
    frame: str
    infinitive: str
    particle: str
    reflexive: bool
    preposition: str
    case: Case
    forms: tuple[str, ...]
    perfect: str
    english: str
    tail: tuple[str, ...]
    english_forms: tuple[str, ...]
    subjects: frozenset[str]
    objects: frozenset[str]

    @property
    def preposition_role(self) -> str:
        """The role that links a German preposition: an English one, or else the verb."""
        return "preposition" if self.preposition and self.tail else "verb"


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective: `comparative` and `english_comparative` as coded in the table."""

    german: str
    comparative: str
    english: str
    english_comparative: str
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class Phrase:
    """A fixed phrase in two languages as parallel units of one or more words."""

    kind: str
    german: tuple[tuple[str, ...], ...]
    english: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb; in English an auxiliary, or a verb with `to` (which takes do-support)."""

    infinitive: str
    present: str
    past: str | None
    english: tuple[str, ...]
    english_past: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Preposition:
    """A preposition with the case it governs."""

    german: str
    case: Case
    english: str


@dataclass(frozen=True, eq=False)
class Determiner:
    """A determiner: how it declines, and which ending it leaves to the adjective."""

    german: str
    english: dict[Number, str]
    declension: Literal["der", "dieser", "ein", "none"]
    adjective: Literal["weak", "mixed", "strong"]


@dataclass(frozen=True, eq=False)
class Person:
    """A personal pronoun; object forms that would be ambiguous (`sie`) are left out."""

    person: int
    number: Number
    german: dict[Case, str]
    english: dict[Role, str]


@dataclass(frozen=True)
class ToyLexicon:
    """Every content word, in the order of the tables."""

    nouns: tuple[Noun, ...]
    verbs: tuple[Verb, ...]
    adjectives: tuple[Adjective, ...]
    phrases: tuple[Phrase, ...]


@cache
def lexicon() -> ToyLexicon:
    """The four tables."""
    return ToyLexicon(
        nouns=tuple(
            Noun(german, GENDERS[article], plural, english, english_plural, frozenset(classes))
            for classes, article, german, plural, english, english_plural in _rows("nouns.tsv")
        ),
        verbs=tuple(map(_verb, _rows("verbs.tsv"))),
        adjectives=tuple(
            Adjective(german, comparative, english, english_comparative, frozenset(classes))
            for classes, german, comparative, english, english_comparative in _rows(
                "adjectives.tsv"
            )
        ),
        phrases=tuple(_phrase(*row) for row in _rows("adverbs.tsv")),
    )


@cache
def nouns_of(letter: str) -> tuple[Noun, ...]:
    """The nouns of a class."""
    return tuple(noun for noun in lexicon().nouns if letter in noun.classes)


def _rows(name: str) -> Iterator[list[str]]:
    text = (files(__package__) / name).read_text(encoding="utf-8")
    for line in text.rstrip("\n").split("\n")[1:]:  # the first line names the columns
        yield line.split("\t")


def _verb(row: list[str]) -> Verb:
    frame, german, forms, perfect, english, english_forms, subjects, objects = row
    words = german.split(" ")
    reflexive = words[0] == "sich"
    words = words[reflexive:]
    preposition, _, case = words.pop().partition(":") if ":" in words[-1] else ("", "", "")
    verb, *tail = english.split(" ")
    return Verb(
        lemma=f"{frame}:{german}",
        frame=frame,
        infinitive=words[-1],
        particle=words[0] if len(words) == 2 else "",
        reflexive=reflexive,
        preposition=preposition,
        case="dat" if "dat" in (case, frame[:3]) else "acc",
        forms=tuple(forms.split()),
        perfect=perfect,
        english=verb,
        tail=tuple(tail),
        english_forms=tuple(english_forms.split()),
        subjects=frozenset(subjects),
        objects=frozenset(objects),
    )


def _phrase(kind: str, german: str, english: str) -> Phrase:
    """A phrase as the tables spell it: `in_the evening` has the units (in, the) and (evening)."""
    return Phrase(kind, *(
        tuple(tuple(unit.split("_")) for unit in side.split(" ")) for side in (german, english)
    ))  # fmt: skip


# The closed classes: pronouns, determiners, prepositions, modals and conjunctions.


def _person(person: int, number: Number, german: str, english: str) -> Person:
    """A pronoun of its German nominative, accusative and dative, its English subject and object."""
    roles: tuple[Role, ...] = ("subject", "object")
    return Person(
        person,
        number,
        dict(zip(CASES, german.split(), strict=False)),
        dict(zip(roles, english.split(), strict=False)),
    )


ICH = _person(1, "sg", "ich mich mir", "I me")
DU = _person(2, "sg", "du dich dir", "you you")
ER = _person(3, "sg", "er ihn ihm", "he him")
SIE = _person(3, "sg", "sie", "she")
WIR = _person(1, "pl", "wir uns uns", "we us")
SIE_PLURAL = _person(3, "pl", "sie", "they")
PERSONS = (ICH, DU, ER, SIE, WIR, SIE_PLURAL)
ES = _person(3, "sg", "es", "it")
ES_THERE = _person(3, "sg", "es", "there")

DEFINITE = Determiner("der", {"sg": "the", "pl": "the"}, "der", "weak")
INDEFINITE = Determiner("ein", {"sg": "a"}, "ein", "mixed")
NO = Determiner("kein", {"sg": "no", "pl": "no"}, "ein", "mixed")
BARE = Determiner("", {"sg": "", "pl": ""}, "none", "strong")
THIS = Determiner("dies", {"sg": "this", "pl": "these"}, "dieser", "weak")
POSSESSIVES = tuple(
    Determiner(german, {"sg": english, "pl": english}, "ein", "mixed")
    for german, english in (("mein", "my"), ("dein", "your"), ("sein", "his"), ("unser", "our"))
)
EVERY = Determiner("jed", {"sg": "every"}, "dieser", "weak")
QUANTIFIERS = (
    Determiner("all", {"pl": "all"}, "dieser", "weak"),
    Determiner("beid", {"pl": "both"}, "dieser", "weak"),
    Determiner("viel", {"pl": "many"}, "dieser", "strong"),
    Determiner("wenig", {"pl": "few"}, "dieser", "strong"),
    Determiner("einig", {"pl": "some"}, "dieser", "strong"),
    Determiner("mehrer", {"pl": "several"}, "dieser", "strong"),
)

PLACES = (
    Preposition("in", "dat", "in"),
    Preposition("vor", "dat", "in front of"),
    Preposition("hinter", "dat", "behind"),
    Preposition("neben", "dat", "next to"),
    Preposition("bei", "dat", "near"),
)
DIRECTIONS = (
    Preposition("zu", "dat", "to"),
    Preposition("in", "acc", "into"),
    Preposition("aus", "dat", "out of"),
    Preposition("durch", "acc", "through"),
    Preposition("um", "acc", "around"),
)
COMPANIONS = (
    Preposition("mit", "dat", "with"),
    Preposition("ohne", "acc", "without"),
    Preposition("für", "acc", "for"),
)
AGENT = Preposition("von", "dat", "by")

MODALS = (
    Modal("können", "kann", "konnte", ("can",), ("could",)),
    Modal("müssen", "muss", "musste", ("have", "to"), ("have", "to")),
    Modal("wollen", "will", "wollte", ("want", "to"), ("want", "to")),
    Modal("sollen", "soll", None, ("should",), ()),
    Modal("dürfen", "darf", None, ("may",), ()),
)
TENDENCIES = tuple(entry for entry in MODALS if entry.infinitive != "wollen")  # for who has no will


def _conjunctions(kind: str, pairs: str) -> tuple[Phrase, ...]:
    return tuple(_phrase(kind, *pair.split()) for pair in pairs.split(","))


COMPLEMENTIZERS = {
    "that": _phrase("complementizer", "dass", "that"),
    "whether": _phrase("complementizer", "ob", "whether"),
}
SUBORDINATORS = _conjunctions(
    "subordinator",
    "weil because, wenn when, falls if, obwohl although, während while, bevor before, "
    "nachdem after, bis until, da since, damit so_that, sobald as_soon_as, solange as_long_as",
)
COORDINATORS = _conjunctions("coordinator", "und and, oder or")
# these take a comma before them in both languages
CONTRASTS = _conjunctions("coordinator", "aber but, doch yet, denn for")
