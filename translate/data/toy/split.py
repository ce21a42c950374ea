"""Which words may stand together, and which of these pairs are kept for dev and test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal
from zlib import crc32

from translate.data.toy.lexicon import Adjective, Noun, Phrase, Verb, lexicon
from translate.data.toy.syntax import Combination, counts

Argument = Literal["subject", "object", "indirect"]

HELD_OUT_SHARE = 10  # one combination in ten
IMPERSONAL = ("weather", "existential")
IN_RELATIVES = ("intransitive", "motion", "accusative", "dative", "prepositional")


def is_held_out(combination: Combination) -> bool:
    """Whether a combination belongs to dev and test: fixed by its two lemmas, not by any seed."""
    return crc32(" ".join(combination).encode()) % HELD_OUT_SHARE == 0


@dataclass(frozen=True)
class Choices:
    """What may stand together on one side of the split."""

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
