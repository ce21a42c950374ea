"""Random sentences of about a wanted length, from one side of the train/test split."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from translate.extras.toy import words
from translate.extras.toy.syntax import (
    IMPERSONAL,
    Adjunct,
    Argument,
    Choices,
    Clause,
    Coordination,
    Name,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Pronoun,
    Sentence,
    Slot,
    Trace,
    choices,
)
from translate.extras.toy.words import (
    Adjective,
    Determiner,
    Noun,
    Number,
    Person,
    Phrase,
    Preposition,
    Tense,
    Verb,
    nouns_of,
)

T = TypeVar("T")
EMBEDDING = ("that", "whether", "infinitive")  # frames with a clause inside
EMBEDDED_WORDS = 4  # of the words of an embedding frame, those its embedded clause may use
RELATIVE_WORDS = 1  # two commas and a pronoun, in place of a noun phrase
IN_INFINITIVES = ("intransitive", "motion", "accusative", "dative", "ditransitive", "prepositional")
MAX_DEPTH = 3  # of clauses within clauses
MAX_QUESTION = 20  # words: a longer question would end far from its verb


class Chance:
    """A seeded source of choices; `room` counts the German words still to be spent.

    Only `random.Random.random` is used: Python promises its sequence for a seed across versions.
    """

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random
        self.room = 0

    def happens(self, probability: float) -> bool:
        """True with a probability."""
        return self.random() < probability

    def spend(self, words: int, probability: float) -> bool:
        """Take an option of some words if there is room: the likelier, the more room there is."""
        surplus = self.room - words
        tries = 1 + min(surplus, 8) / 4
        if surplus < 0 or not self.happens(1 - (1 - probability) ** tries):
            return False
        self.room = surplus
        return True

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self.random() * len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """One of the options, by their weights."""
        point = self.random() * sum(weight for _, weight in options)
        for option, weight in options:
            point -= weight
            if point < 0:
                return option
        return options[-1][0]  # the sum was rounded up


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


PAST: tuple[Tense, ...] = ("past", "perfect", "pluperfect")


class ArgumentSampler:
    """A source of what stands around a verb, on one side of the split, as far as the room goes."""

    def __init__(self, chance: Chance, choices: Choices, phrases: NounPhraseSampler) -> None:
        self._chance, self._choices, self._phrases = chance, choices, phrases

    def subject(self, verb: Verb, depth: int) -> Nominal:
        """Draw a subject, or an `es` that stands for nobody."""
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
        """Draw where, with whom, how and when, each by chance."""
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


class Frame(NamedTuple):
    """The German words a bare clause of this kind takes, and how often it is chosen."""

    words: int
    weight: float


FRAMES = {
    "intransitive": Frame(3, 5),
    "motion": Frame(3, 4),
    "accusative": Frame(5, 14),
    "dative": Frame(5, 4),
    "ditransitive": Frame(7, 4),
    "prepositional": Frame(6, 5),
    "copula": Frame(4, 3),
    "existential": Frame(4, 1.5),
    "weather": Frame(2, 0.3),
    "that": Frame(9, 6),
    "whether": Frame(9, 2),
    "infinitive": Frame(8, 5),
}
TENSES: dict[Tense, float] = {
    "present": 7,
    "past": 4,
    "perfect": 5,
    "pluperfect": 1,
    "future": 4,
}
# The tenses that go with a main clause in the past, or not, in `weil`, `wenn`, `bevor`.
SEQUENCE: dict[bool, dict[Tense, float]] = {
    True: {"past": 4, "perfect": 4, "pluperfect": 1},
    False: {"present": 4, "perfect": 1},
}


class Sampler:
    """Draws sentence trees whose combinations are all held out, or none of them."""

    def __init__(self, seed: str, *, held_out: bool) -> None:
        self._chance = Chance(seed)
        self._choices = choices(held_out)
        phrases = NounPhraseSampler(self._chance, self._choices, self._relative)
        self._arguments = ArgumentSampler(self._chance, self._choices, phrases)

    def random(self) -> float:
        """A number from 0 to below 1, from the sampler's own stream."""
        return self._chance.random()

    def sentence(self, length: int) -> Sentence:
        """A sentence of about `length` words, often a few fewer or more."""
        chance = self._chance
        chance.room = length - 1  # the final mark
        if length <= MAX_QUESTION and chance.happens(0.1):
            return Sentence([self._question()])
        sentence = Sentence([self._statement()])
        while chance.room >= 4:
            contrast = chance.happens(0.4)
            chance.room -= 1 + contrast
            sentence.conjunctions.append(
                chance.pick(words.CONTRASTS if contrast else words.COORDINATORS)
            )
            sentence.clauses.append(self._statement())
        return sentence

    def _statement(self) -> Clause:
        clause = self._any_clause(0, TENSES)
        clause.front = self._front(clause)
        return clause

    def _question(self) -> Clause:
        """A yes-no question, or one with a question word, which takes the place of its answer."""
        clause = self._any_clause(0, TENSES)
        clause.question = True
        if self._chance.spend(1, 0.3):
            clause.opener = self._chance.pick(self._choices.phrases["question"])
            clause.front = "opener"
            match clause.opener.german[0]:
                case ("wann", *_):
                    clause.time = None
                case ("wo", *_):
                    clause.place = None
                case ("wie", "oft"):
                    clause.frequency = None
        return clause

    def _any_clause(self, depth: int, tenses: dict[Tense, float]) -> Clause:
        return self._clause(self._verb(tuple(FRAMES), depth), depth, tenses)

    def _verb(self, frames: Sequence[str], depth: int) -> Verb:
        """A verb whose frame fits the room."""
        fitting = [
            (frame, FRAMES[frame].weight)
            for frame in frames
            if FRAMES[frame].words <= max(self._chance.room, FRAMES["intransitive"].words)
            and (depth < MAX_DEPTH or frame not in EMBEDDING)
        ]
        verb = self._chance.pick(self._choices.verbs[self._chance.weighted(fitting)])
        self._chance.room -= FRAMES[verb.frame].words
        return verb

    def _clause(self, verb: Verb, depth: int, tenses: dict[Tense, float]) -> Clause:
        clause = Clause(verb, self._arguments.subject(verb, depth))
        self._tense(clause, tenses)
        self._polarity(clause)
        if verb.objects:
            clause.object = self._arguments.object(clause, "object", depth)
        if verb.frame == "ditransitive":
            clause.indirect = self._arguments.object(clause, "indirect", depth)
        if verb.frame == "copula":
            clause.predicate = self._arguments.predicate(clause)
        if verb.frame == "accusative" and self._chance.happens(0.12):
            self._make_passive(clause)
        self._arguments.adverbials(clause)
        self._embed(clause, depth)
        return clause

    def _relative(self, noun: Noun, number: Number, depth: int) -> Clause | None:
        """A clause with a relative pronoun as its subject or object, if there is room."""
        shortest = RELATIVE_WORDS + FRAMES["intransitive"].words
        reserved = 2  # words, before a verb is known
        if (
            depth >= MAX_DEPTH
            or self._chance.room < shortest
            or not self._chance.spend(reserved, 0.15)
        ):
            return None
        fitting = [
            (verb, role)
            for verb, role in self._choices.relatives[noun]
            if FRAMES[verb.frame].words + RELATIVE_WORDS <= self._chance.room + reserved
        ]
        if not fitting:
            return None
        verb, role = self._chance.pick(fitting)
        self._chance.room -= FRAMES[verb.frame].words + RELATIVE_WORDS - reserved
        trace = Trace(noun, number)
        clause = Clause(verb, trace if role == "subject" else self._arguments.subject(verb, depth))
        self._tense(clause, TENSES)
        self._polarity(clause)
        if role == "object":
            clause.object, clause.front = trace, "object"
            self._show_subject(clause, trace)
        elif verb.objects:
            clause.object = self._arguments.object(clause, "object", depth)
        self._arguments.adverbials(clause)
        self._embed(clause, depth)
        return clause

    def _show_subject(self, clause: Clause, trace: Trace) -> None:
        """`die Frau , die …`: without a marked case, only a pronoun tells subject from object."""
        accusative = clause.verb.case == "acc" and not clause.verb.preposition
        if accusative and not (_is_marked(trace) or _is_marked(clause.subject)):
            clause.subject = Pronoun(self._chance.pick((words.ICH, words.DU, words.ER, words.WIR)))

    def _infinitive(self, matrix: Clause, depth: int) -> Clause:
        """`zu lesen`: the understood subject only chooses the reflexive pronoun."""
        verb = self._verb(IN_INFINITIVES, depth)
        while "p" not in verb.subjects:
            verb = self._chance.pick(self._choices.verbs["intransitive"])
        clause = Clause(verb, matrix.subject)
        if verb.objects:
            clause.object = self._arguments.object(clause, "object", depth)
        if verb.frame == "ditransitive":
            clause.indirect = self._arguments.object(clause, "indirect", depth)
        if verb.frame == "motion" and self._chance.spend(3, 0.6):
            clause.place = self._arguments.place(words.DIRECTIONS)
        return clause

    # Verb features

    def _tense(self, clause: Clause, tenses: dict[Tense, float]) -> None:
        """A tense or a modal verb; with `du`, as in speech, a perfect in place of the past."""
        if "present" in tenses and self._chance.happens(0.15):
            can_want = "p" in clause.verb.subjects and clause.verb.frame != "copula"
            clause.modal = self._chance.pick(words.MODALS if can_want else words.TENDENCIES)
            if clause.modal.past and "past" in tenses and self._chance.happens(0.35):
                clause.tense = "past"
            self._chance.room -= 1
            return
        clause.tense = self._chance.weighted(tuple(tenses.items()))
        spoken = isinstance(clause.subject, Pronoun) and clause.subject.person is words.DU
        if clause.tense == "past" and spoken and clause.verb.frame != "copula":
            clause.tense = "perfect"
        self._chance.room -= clause.tense not in ("present", "past")

    def _polarity(self, clause: Clause) -> None:
        """`nicht` or an adverb such as `nie`, never both; `kein` is left to the object."""
        if clause.verb.frame not in IMPERSONAL and self._chance.spend(1, 0.08):
            clause.negated = True
        elif self._chance.spend(1, 0.07):
            clause.frequency = self._chance.pick(self._choices.phrases["frequency"])

    def _make_passive(self, clause: Clause) -> None:
        """The object becomes the subject. `bekommen` would read as a future: it has no passive."""
        verb, patient, actor = clause.verb, clause.object, clause.subject
        like_future = bool(verb.forms) and verb.forms[2] == verb.infinitive
        if verb.tail or like_future or verb.lemma == "accusative:haben":
            return
        if not isinstance(patient, NounPhrase) or patient.determiner is words.NO:
            return
        clause.passive, clause.modal = True, None
        clause.tense = "past" if clause.tense in PAST else "present"
        clause.subject, clause.object = patient, None
        if isinstance(actor, NounPhrase):
            clause.agent = Prepositional(words.AGENT, actor)

    # Further clauses, and the order of all

    def _embed(self, clause: Clause, depth: int) -> None:
        frame = clause.verb.frame
        if frame in EMBEDDING:
            self._chance.room += EMBEDDED_WORDS
        if frame == "infinitive":
            clause.infinitive = self._infinitive(clause, depth + 1)
        elif frame in EMBEDDING:
            clause.complement = self._any_clause(depth + 1, TENSES)
        elif depth < MAX_DEPTH and self._chance.room >= 6 and self._chance.spend(2, 0.3):
            conjunction = self._chance.pick(words.SUBORDINATORS)
            tenses = SEQUENCE[clause.tense in PAST]
            clause.adjunct = Adjunct(conjunction, self._any_clause(depth + 1, tenses))

    def _front(self, clause: Clause) -> Slot:
        """Choose the words before the finite verb: none that could be misread there."""
        if clause.adjunct and self._chance.happens(0.5):
            clause.adjunct.fronted = True
            return "adjunct"
        if self._chance.spend(1, 0.08):
            clause.opener = self._chance.pick(self._choices.phrases["comment"])
            return "opener"
        slots: list[tuple[Slot, float]] = [("subject", 1.0)]
        if clause.time:
            slots.append(("time", 1.0))
        if clause.place:
            slots.append(("place", 0.7))
        if clause.frequency:
            slots.append(("frequency", 0.3))
        if _can_front_object(clause):
            slots.append(("object", 0.7))
        if isinstance(clause.indirect, NounPhrase) and clause.indirect.determiner.german:
            slots.append(("indirect", 0.5))
        return self._chance.weighted(slots)


def _is_marked(nominal: Nominal) -> bool:
    """Tell whether nominative and accusative differ, as in `der Mann`, `den Mann`."""
    match nominal:
        case Pronoun(person):
            return "acc" in person.german
        case NounPhrase(noun=noun, number=number, determiner=determiner):
            return noun.gender == "m" and number == "sg" and bool(determiner.german)
        case Trace(noun, number):
            return noun.gender == "m" and number == "sg"
        case _:
            return False


def _can_front_object(clause: Clause) -> bool:
    verb, nominal = clause.verb, clause.object
    if nominal is None or verb.frame == "existential":
        return False
    if verb.preposition:
        return True
    if verb.case == "dat":
        declined = isinstance(nominal, NounPhrase) and bool(nominal.determiner.german)
        return declined or isinstance(nominal, Pronoun)
    return not isinstance(nominal, Coordination) and (
        _is_marked(nominal) or _is_marked(clause.subject)
    )
