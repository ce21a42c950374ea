"""Trees of sentences, before either language has put them in order.

One tree is spelled out twice. Every word carries links, pairs of a tree node and a role. A German
and an English word are aligned exactly when they share one: the alignment is gold by construction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple
from zlib import crc32

from translate.extras.toy.words import (
    Adjective,
    Determiner,
    Modal,
    Noun,
    Number,
    Person,
    Phrase,
    Preposition,
    Tense,
    Verb,
    lexicon,
)

# What can stand before the finite verb.
Slot = Literal["subject", "indirect", "object", "time", "frequency", "place", "opener", "adjunct"]
Combination = tuple[str, str]
Argument = Literal["subject", "object", "indirect"]
IMPERSONAL = ("weather", "existential")
IN_RELATIVES = ("intransitive", "motion", "accusative", "dative", "prepositional")


class Link(NamedTuple):
    """One thing a word stands for: a node of the tree (by identity) and the role in it."""

    node: int
    role: str


class Word(NamedTuple):
    """One token with everything it stands for."""

    text: str
    links: frozenset[Link] = frozenset()


def word(text: str, node: object, *roles: str) -> Word:
    """The token `text`, linked to the roles of a tree node."""
    return Word(text, frozenset(Link(id(node), role) for role in roles))


def spell(phrase: Phrase, units: tuple[tuple[str, ...], ...], node: object) -> list[Word]:
    """One side of a fixed phrase: its i-th unit links to the i-th unit of the other side."""
    return [
        word(text, node, f"{phrase.kind} {index}")
        for index, unit in enumerate(units)
        for text in unit
    ]


# Nodes compare by identity, as their links do.
@dataclass(eq=False)
class NounPhrase:
    """A noun with what agrees with it."""

    noun: Noun
    number: Number
    determiner: Determiner
    numeral: int | None = None
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | None = None
    relative: Clause | None = None


@dataclass(eq=False)
class Pronoun:
    """A personal pronoun."""

    person: Person


@dataclass(eq=False)
class Name:
    """A person's name."""

    text: str


@dataclass(eq=False)
class Trace:
    """The place of the noun in a relative clause: spelled out as a relative pronoun."""

    noun: Noun
    number: Number


@dataclass(eq=False)
class Coordination:
    """Two noun phrases joined by `und`."""

    left: NounPhrase
    right: NounPhrase


Nominal = NounPhrase | Pronoun | Name | Trace | Coordination


@dataclass(eq=False)
class Prepositional:
    """A preposition with its noun phrase."""

    preposition: Preposition
    nominal: Nominal


@dataclass(eq=False)
class Predicate:
    """A predicate adjective, as a comparative when it has a standard (`älter als der Mann`)."""

    adjective: Adjective
    standard: Nominal | None = None


@dataclass(eq=False)
class Adjunct:
    """A subordinate clause with its conjunction, before or behind its main clause."""

    conjunction: Phrase
    clause: Clause
    fronted: bool = False


@dataclass(eq=False)
class Clause:
    """A verb with its arguments.

    `front` is what German puts before the finite verb; in a relative clause, its trace.
    """

    verb: Verb
    subject: Nominal
    object: Nominal | None = None
    indirect: Nominal | None = None
    tense: Tense = "present"
    modal: Modal | None = None
    passive: bool = False
    agent: Prepositional | None = None
    negated: bool = False
    frequency: Phrase | None = None
    manner: Phrase | None = None
    time: Phrase | None = None
    companion: Prepositional | None = None
    place: Prepositional | None = None
    predicate: Predicate | None = None
    complement: Clause | None = None
    infinitive: Clause | None = None
    adjunct: Adjunct | None = None
    opener: Phrase | None = None
    question: bool = False
    front: Slot = "subject"


@dataclass(eq=False)
class Sentence:
    """Main clauses and what joins each to the one before it."""

    clauses: list[Clause]
    conjunctions: list[Phrase] = field(default_factory=list)

    @property
    def mark(self) -> str:
        """The final punctuation."""
        return "?" if self.clauses[0].question else "."


def agreement(nominal: Nominal) -> tuple[int, Number]:
    """Person and number a verb takes from its subject."""
    match nominal:
        case Pronoun(person):
            return person.person, person.number
        case Name():
            return 3, "sg"
        case Coordination():
            return 3, "pl"
        case NounPhrase() | Trace():
            return 3, nominal.number


def combinations(sentence: Sentence) -> set[Combination]:
    """Every (verb, argument noun) and (adjective, noun) of a sentence, as pairs of German lemmas.

    Arguments are the spoken subject and objects, a passive's agent, and the noun that a relative
    clause belongs to; predicate adjectives pair with their subject. `sein` and `es gibt` do not
    count, nor does a verb with nouns in adverbials, possessors and standards of comparison.
    """
    return {pair for clause in sentence.clauses for pair in _of_clause(clause)}


def _of_clause(clause: Clause, *, spoken_subject: bool = True) -> Iterator[Combination]:
    subject = clause.subject if spoken_subject else None
    agent = clause.agent.nominal if clause.agent else None
    for argument in (subject, clause.object, clause.indirect, agent):
        for noun in _heads(argument):
            if counts(clause.verb):
                yield clause.verb.lemma, noun.german
            if clause.predicate and argument is subject:
                yield clause.predicate.adjective.german, noun.german
    standard = clause.predicate.standard if clause.predicate else None
    adverbials = [part.nominal for part in (clause.companion, clause.place) if part]
    for nominal in (subject, clause.object, clause.indirect, agent, standard, *adverbials):
        yield from _inside(nominal)
    for embedded in (clause.complement, clause.adjunct.clause if clause.adjunct else None):
        if embedded:
            yield from _of_clause(embedded)
    if clause.infinitive:
        yield from _of_clause(clause.infinitive, spoken_subject=False)


def counts(verb: Verb) -> bool:
    """Tell whether this verb with its nouns makes combinations to hold out."""
    return verb.frame not in {"copula", "existential", "weather"}


def _heads(nominal: Nominal | None) -> tuple[Noun, ...]:
    match nominal:
        case NounPhrase() | Trace():
            return (nominal.noun,)
        case Coordination(left, right):
            return left.noun, right.noun
        case _:
            return ()


def _inside(nominal: Nominal | None) -> Iterator[Combination]:
    """The combinations within a noun phrase, its possessor and its relative clause."""
    match nominal:
        case Coordination(left, right):
            yield from _inside(left)
            yield from _inside(right)
        case NounPhrase():
            for adjective in nominal.adjectives:
                yield adjective.german, nominal.noun.german
            yield from _inside(nominal.possessor)
            if nominal.relative:
                yield from _of_clause(nominal.relative)


# Which words may stand together, and which of these pairs are kept for dev and test.


def is_held_out(combination: Combination) -> bool:
    """Tell whether a combination, one in ten, belongs to dev and test: by its lemmas, no seed."""
    return crc32(" ".join(combination).encode()) % 10 == 0


@dataclass(frozen=True)
class Choices:
    """Words that may stand together on one side of the split."""

    verbs: dict[str, tuple[Verb, ...]]
    arguments: dict[tuple[Verb, Argument], tuple[Noun, ...]]
    adjectives: dict[Noun, tuple[Adjective, ...]]
    predicates: dict[Noun, tuple[Adjective, ...]]
    relatives: dict[Noun, tuple[tuple[Verb, Argument], ...]]
    phrases: dict[str, tuple[Phrase, ...]]


@cache
def choices(held_out: bool) -> Choices:
    """All combinations that are held out, or all that are not."""
    entries = lexicon()
    adjectives = {
        noun: tuple(
            adjective
            for adjective in entries.adjectives
            if adjective.classes & noun.classes
            and is_held_out((adjective.german, noun.german)) == held_out
        )
        for noun in entries.nouns
    }
    predicates = {
        noun: tuple(entry for entry in fitting if entry.comparative != "attributive")
        for noun, fitting in adjectives.items()
    }

    def fits(verb: Verb, noun: Noun) -> bool:
        if verb.frame == "copula":
            return bool(predicates[noun])
        return not counts(verb) or is_held_out((verb.lemma, noun.german)) == held_out

    arguments = {
        (verb, role): tuple(
            noun for noun in entries.nouns if allowed & noun.classes and fits(verb, noun)
        )
        for verb in entries.verbs
        for role, allowed in _roles(verb).items()
    }
    verbs = [verb for verb in entries.verbs if all(arguments[verb, role] for role in _roles(verb))]
    return Choices(
        verbs={
            frame: tuple(verb for verb in verbs if verb.frame == frame)
            for frame in dict.fromkeys(verb.frame for verb in verbs)
        },
        arguments=arguments,
        adjectives=adjectives,
        predicates=predicates,
        relatives={
            noun: tuple(
                (verb, role)
                for verb in verbs
                if verb.frame in IN_RELATIVES
                for role in _roles(verb)
                if role != "indirect" and noun in arguments[verb, role]
            )
            for noun in entries.nouns
        },
        phrases={
            kind: tuple(phrase for phrase in entries.phrases if phrase.kind == kind)
            for kind in dict.fromkeys(phrase.kind for phrase in entries.phrases)
        },
    )


def _roles(verb: Verb) -> dict[Argument, frozenset[str]]:
    """The arguments a verb needs, and of which classes."""
    roles: dict[Argument, frozenset[str]] = {}
    if verb.frame not in IMPERSONAL:
        roles["subject"] = verb.subjects
    if verb.objects:
        roles["object"] = verb.objects
    if verb.frame == "ditransitive":
        roles["indirect"] = frozenset("p")
    return roles
