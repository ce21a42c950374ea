"""What stands around a verb: its subject, its objects, a predicate, adverbials."""

from __future__ import annotations

from collections.abc import Sequence

from translate.data.toy import function_words as words
from translate.data.toy.chance import Chance
from translate.data.toy.lexicon import Person, Phrase, Preposition, Tense, Verb, nouns_of
from translate.data.toy.noun_phrases import NounPhraseSampler
from translate.data.toy.split import Argument, Choices
from translate.data.toy.syntax import (
    Clause,
    Coordination,
    Name,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Pronoun,
)

EMBEDDING = ("that", "whether", "infinitive")  # frames with a clause inside
PAST: tuple[Tense, ...] = ("past", "perfect", "pluperfect")


class ArgumentSampler:
    """Draws them from one side of the train/test split, as far as the room goes."""

    def __init__(self, chance: Chance, choices: Choices, phrases: NounPhraseSampler) -> None:
        self._chance, self._choices, self._phrases = chance, choices, phrases

    def subject(self, verb: Verb, depth: int) -> Nominal:
        """Who does it, or an `es` that stands for nobody."""
        if verb.frame == "existential":
            return Pronoun(words.ES_THERE)
        if verb.frame == "weather":
            return Pronoun(words.ES)
        if "p" in verb.subjects:
            if self._chance.happens(0.22):
                return self._short(Pronoun(self._chance.pick(words.PERSONS)))
            if self._chance.happens(0.06):
                return self._short(Name(self._chance.pick(words.NAMES)))
        return self._phrases.argument(self._choices.arguments[verb, "subject"], depth)

    def object(self, clause: Clause, role: Argument, depth: int) -> Nominal:
        """The object or the indirect object of a clause that has its subject."""
        verb = clause.verb
        classes = verb.objects if role == "object" else frozenset("p")
        second = role == "indirect" and isinstance(clause.object, Pronoun)  # two change their order
        if "p" in classes and verb.frame != "existential" and not second:
            if self._chance.happens(0.12):
                return self._short(Pronoun(self._other_person(clause.subject)))
            if self._chance.happens(0.04):
                return self._short(Name(self._chance.pick(words.NAMES)))
        return self._phrases.argument(
            self._choices.arguments[verb, role],
            depth,
            definite=clause.negated,
            negatable=not clause.negated and not clause.frequency,
        )

    def _short(self, nominal: Nominal) -> Nominal:
        """One word instead of the two that every frame has reserved."""
        self._chance.room += 1
        return nominal

    def _other_person(self, subject: Nominal) -> Person:
        """An object that is not its own subject (which would be reflexive)."""
        persons = [person for person in words.PERSONS if "object" in person.english]
        if isinstance(subject, Pronoun):
            persons = [person for person in persons if person is not subject.person]
        return self._chance.pick(persons)

    def predicate(self, clause: Clause) -> Predicate:
        """An adjective that fits the subject's noun; a joined subject is cut to its left half."""
        if isinstance(clause.subject, Coordination):
            clause.subject = clause.subject.left
        fitting = self._choices.predicates
        if isinstance(clause.subject, NounPhrase):
            noun = clause.subject.noun
        else:
            noun = self._chance.pick([noun for noun in nouns_of("p") if fitting[noun]])
        predicate = Predicate(self._chance.pick(fitting[noun]))
        if predicate.adjective.comparative != "-" and self._chance.spend(3, 0.25):
            predicate.standard = self._phrases.noun_phrase([noun])
        return predicate

    def adverbials(self, clause: Clause) -> None:
        """Where, with whom, how and when, each by chance."""
        frame, spend = clause.verb.frame, self._chance.spend
        if frame == "motion" and spend(3, 0.6):
            clause.place = self.place(words.DIRECTIONS)
        elif frame not in (*EMBEDDING, "copula") and spend(3, 0.12):
            clause.place = self.place(words.PLACES)
        if frame in ("intransitive", "motion") and spend(3, 0.12):
            people = self._phrases.noun_phrase(nouns_of("p"), adverbial=True)
            clause.companion = Prepositional(self._chance.pick(words.COMPANIONS), people)
        if frame in ("intransitive", "motion", "accusative") and spend(1, 0.12):
            clause.manner = self._chance.pick(self._choices.phrases["manner"])
        if spend(2, 0.2):
            clause.time = self._time(clause.tense)

    def place(self, prepositions: Sequence[Preposition]) -> Prepositional:
        """A place behind one of these prepositions."""
        place = self._phrases.noun_phrase(nouns_of("l"), adverbial=True)
        return Prepositional(self._chance.pick(prepositions), place)

    def _time(self, tense: Tense) -> Phrase:
        phrases = self._choices.phrases
        return self._chance.pick(
            (*phrases["past" if tense in PAST else tense], *phrases["anytime"])
        )
