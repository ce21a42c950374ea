"""Random noun phrases: determiner, number, adjectives, possessor and relative clause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from translate.data.toy import function_words as words
from translate.data.toy.chance import Chance
from translate.data.toy.lexicon import Adjective, Determiner, Noun, Number, nouns_of
from translate.data.toy.split import Choices
from translate.data.toy.syntax import Clause, Coordination, NounPhrase


class NounPhraseSampler:
    """Draws noun phrases; relative clauses come from the sampler of clauses."""

    def __init__(
        self,
        chance: Chance,
        choices: Choices,
        relative_clause: Callable[[Noun, Number, int], Clause | None],
    ) -> None:
        self._chance = chance
        self._choices = choices
        self._relative_clause = relative_clause

    def argument(
        self, nouns: Sequence[Noun], depth: int, *, definite: bool = False, negatable: bool = False
    ) -> NounPhrase | Coordination:
        """A subject or object with all it can have; `kein` only where the clause is not negated."""
        if negatable and self._chance.happens(0.08):
            noun = self._chance.pick(nouns)
            return self._modified(NounPhrase(noun, self._number(noun), words.NO))
        phrase = self.noun_phrase(nouns, definite=definite)
        others = [noun for noun in nouns if noun is not phrase.noun]
        if others and self._chance.spend(3, 0.07):
            return Coordination(phrase, self.noun_phrase(others, definite=definite))
        if "p" not in phrase.noun.classes and phrase.determiner is words.DEFINITE:
            self._give_possessor(phrase)
        phrase.relative = self._relative_clause(phrase.noun, phrase.number, depth + 1)
        return phrase

    def noun_phrase(
        self, nouns: Sequence[Noun], *, definite: bool = False, adverbial: bool = False
    ) -> NounPhrase:
        """A noun with determiner, number and adjectives. In an adverbial, the case must show."""
        noun = self._chance.pick(nouns)
        number = self._number(noun)
        determiner = self._determiner(noun, number, definite=definite, adverbial=adverbial)
        phrase = NounPhrase(noun, number, determiner)
        if number == "pl" and not adverbial:
            by_itself = determiner in (words.DEFINITE, words.BARE, *words.POSSESSIVES)
            if by_itself and self._chance.happens(0.3):
                phrase.numeral = self._numeral()
                self._chance.room -= 1
        return self._modified(phrase)

    def _modified(self, phrase: NounPhrase) -> NounPhrase:
        adjectives: Sequence[Adjective] = self._choices.adjectives[phrase.noun]
        if phrase.determiner not in (words.DEFINITE, words.THIS, *words.POSSESSIVES):
            # `der nächste Hund`, hardly `jeder nächste Hund`
            adjectives = self._choices.predicates[phrase.noun]
        if adjectives and self._chance.spend(1, 0.4):
            first = self._chance.pick(adjectives)
            phrase.adjectives = (first,)
            others = [entry for entry in adjectives if entry is not first]
            if others and first.comparative != "attributive" and self._chance.spend(1, 0.15):
                phrase.adjectives = (self._chance.pick(others), first)
        return phrase

    def _number(self, noun: Noun) -> Number:
        return "pl" if self._chance.happens(0.3) and not noun.mass else "sg"

    def _determiner(
        self, noun: Noun, number: Number, *, definite: bool, adverbial: bool
    ) -> Determiner:
        options = [(words.DEFINITE, 8.0), (words.THIS, 1.0)]
        options += [(possessive, 0.6) for possessive in words.POSSESSIVES]
        if noun.mass:
            if not definite:
                options.append((words.BARE, 5.0))
        elif number == "sg":
            options.append((words.EVERY, 0.5))
            if not definite:
                options.append((words.INDEFINITE, 6.0))
        elif not adverbial:
            options += [(quantifier, 0.5) for quantifier in words.QUANTIFIERS]
            if not definite:
                options.append((words.BARE, 4.0))
        return self._chance.weighted(options)

    def _numeral(self) -> int:
        return 2 + int(self._chance.random() * (11 if self._chance.happens(0.6) else 98))

    def _give_possessor(self, phrase: NounPhrase) -> None:
        """`das Haus der Frau`; the determiner of the possessor must show the genitive."""
        if self._chance.spend(2, 0.12):
            determiner = self._chance.pick((words.DEFINITE, words.DEFINITE, *words.POSSESSIVES))
            noun = self._chance.pick(nouns_of("p"))
            phrase.possessor = self._modified(NounPhrase(noun, self._number(noun), determiner))
