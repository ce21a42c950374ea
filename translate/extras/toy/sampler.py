"""Random sentences of about a wanted length, from one side of the train/test split."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from translate.extras.toy import words
from translate.extras.toy.syntax import (
    IMPERSONAL,
    Adjunct,
    Argument,
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
from translate.extras.toy.words import Determiner, Noun, Number, Person, Preposition, Tense, Verb

T = TypeVar("T")
# Kind of clause → the German words that a bare one takes, and how often it is chosen.
FRAMES = {
    "intransitive": (3, 5), "motion": (3, 4), "accusative": (5, 14), "dative": (5, 4),
    "ditransitive": (7, 4), "prepositional": (6, 5), "copula": (4, 3), "existential": (4, 1.5),
    "weather": (2, 0.3), "that": (9, 6), "whether": (9, 2), "infinitive": (8, 5),
}  # fmt: skip
BARE_WORDS = {frame: count for frame, (count, _) in FRAMES.items()}
EMBEDDING = ("that", "whether", "infinitive")  # frames with a clause inside
EMBEDDED_WORDS = 4  # of the words of an embedding frame, those its embedded clause may use
RELATIVE_WORDS = 1  # two commas and a pronoun, in place of a noun phrase
IN_INFINITIVES = ("intransitive", "motion", "accusative", "dative", "ditransitive", "prepositional")
MAX_DEPTH = 3  # of clauses within clauses
MAX_QUESTION = 20  # words: a longer question would end far from its verb
TENSES: dict[Tense, float] = {
    "present": 7, "past": 4, "perfect": 5, "pluperfect": 1, "future": 4,
}  # fmt: skip
PAST: tuple[Tense, ...] = ("past", "perfect", "pluperfect")
# The tenses that go with a main clause in the past, or not, in `weil`, `wenn`, `bevor`.
SEQUENCE: dict[bool, dict[Tense, float]] = {
    True: {"past": 4, "perfect": 4, "pluperfect": 1},
    False: {"present": 4, "perfect": 1},
}


class SentenceSampler:
    """Draws sentence trees whose combinations are all held out, or none of them.

    `room` counts the German words still to be spent. Only `random.Random.random` is used: Python
    promises its sequence for a seed across versions.
    """

    def __init__(self, seed: str, *, held_out: bool) -> None:
        self.random = random.Random(seed).random
        self._room = 0
        self._choices = choices(held_out)

    def sentence(self, length: int) -> Sentence:
        """A sentence of about `length` words, often a few fewer or more."""
        self._room = length - 1  # the final mark
        if length <= MAX_QUESTION and self._happens(0.1):
            return Sentence([self._question()])
        sentence = Sentence([self._statement()])
        while self._room >= 4:
            contrast = self._happens(0.4)
            self._room -= 1 + contrast
            sentence.conjunctions.append(
                self._pick(words.CONTRASTS if contrast else words.COORDINATORS)
            )
            sentence.clauses.append(self._statement())
        return sentence

    # Choices

    def _happens(self, probability: float) -> bool:
        return self.random() < probability

    def _spend(self, count: int, probability: float) -> bool:
        """Take an option of some words if there is room: the likelier, the more room there is."""
        surplus = self._room - count
        tries = 1 + min(surplus, 8) / 4
        if surplus < 0 or not self._happens(1 - (1 - probability) ** tries):
            return False
        self._room = surplus
        return True

    def _pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def _weighted(self, weights: Mapping[T, float]) -> T:
        """One of the options, by their weights."""
        point = self.random() * sum(weights.values())
        for option, weight in weights.items():
            point -= weight
            if point < 0:
                return option
        return option  # the sum was rounded up

    # Clauses

    def _statement(self) -> Clause:
        clause = self._any_clause(0, TENSES)
        clause.front = self._front(clause)
        return clause

    def _question(self) -> Clause:
        """A yes-no question, or one with a question word, which takes the place of its answer."""
        clause = self._any_clause(0, TENSES)
        clause.question = True
        if self._spend(1, 0.3):
            clause.opener = self._pick(self._choices.phrases["question"])
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
        verb = self._verb(tuple(FRAMES), depth)
        clause = Clause(verb, self._subject(verb, depth))
        self._tense(clause, tenses)
        self._polarity(clause)
        self._objects(clause, depth)
        if verb.frame == "copula":
            clause.predicate = self._predicate(clause)
        if verb.frame == "accusative" and self._happens(0.12):
            self._make_passive(clause)
        self._adverbials(clause)
        self._embed(clause, depth)
        return clause

    def _verb(self, frames: Sequence[str], depth: int) -> Verb:
        """A verb whose frame fits the room."""
        fitting = {
            frame: FRAMES[frame][1]
            for frame in frames
            if BARE_WORDS[frame] <= max(self._room, BARE_WORDS["intransitive"])
            and (depth < MAX_DEPTH or frame not in EMBEDDING)
        }
        verb = self._pick(self._choices.verbs[self._weighted(fitting)])
        self._room -= BARE_WORDS[verb.frame]
        return verb

    def _relative(self, noun: Noun, number: Number, depth: int) -> Clause | None:
        """A clause with a relative pronoun as its subject or object, if there is room."""
        shortest = RELATIVE_WORDS + BARE_WORDS["intransitive"]
        reserved = 2  # words, before a verb is known
        if depth >= MAX_DEPTH or self._room < shortest or not self._spend(reserved, 0.15):
            return None
        fitting = [
            (verb, role)
            for verb, role in self._choices.relatives[noun]
            if BARE_WORDS[verb.frame] + RELATIVE_WORDS <= self._room + reserved
        ]
        if not fitting:
            return None
        verb, role = self._pick(fitting)
        self._room -= BARE_WORDS[verb.frame] + RELATIVE_WORDS - reserved
        trace = Trace(noun, number)
        if role == "subject":
            clause = Clause(verb, trace)
        else:
            clause = Clause(verb, self._subject(verb, depth), trace, front="object")
        self._tense(clause, TENSES)
        self._polarity(clause)
        # `die Frau , die …`: without a marked case, only a pronoun tells subject from object
        accusative = role == "object" and verb.case == "acc" and not verb.preposition
        if accusative and not (_is_marked(trace) or _is_marked(clause.subject)):
            clause.subject = Pronoun(self._pick((words.ICH, words.DU, words.ER, words.WIR)))
        self._objects(clause, depth)
        self._adverbials(clause)
        self._embed(clause, depth)
        return clause

    def _infinitive(self, matrix: Clause, depth: int) -> Clause:
        """`zu lesen`: the understood subject only chooses the reflexive pronoun."""
        verb = self._verb(IN_INFINITIVES, depth)
        while "p" not in verb.subjects:
            verb = self._pick(self._choices.verbs["intransitive"])
        clause = Clause(verb, matrix.subject)
        self._objects(clause, depth)
        if verb.frame == "motion" and self._spend(3, 0.6):
            clause.place = self._place(words.DIRECTIONS)
        return clause

    def _embed(self, clause: Clause, depth: int) -> None:
        frame = clause.verb.frame
        if frame in EMBEDDING:
            self._room += EMBEDDED_WORDS
        if frame == "infinitive":
            clause.infinitive = self._infinitive(clause, depth + 1)
        elif frame in EMBEDDING:
            clause.complement = self._any_clause(depth + 1, TENSES)
        elif depth < MAX_DEPTH and self._room >= 6 and self._spend(2, 0.3):
            conjunction = self._pick(words.SUBORDINATORS)
            tenses = SEQUENCE[clause.tense in PAST]
            clause.adjunct = Adjunct(conjunction, self._any_clause(depth + 1, tenses))

    def _front(self, clause: Clause) -> Slot:
        """Choose the words before the finite verb: none that could be misread there."""
        if clause.adjunct and self._happens(0.5):
            clause.adjunct.fronted = True
            return "adjunct"
        if self._spend(1, 0.08):
            clause.opener = self._pick(self._choices.phrases["comment"])
            return "opener"
        slots: dict[Slot, float] = {"subject": 1.0}
        if clause.time:
            slots["time"] = 1.0
        if clause.place:
            slots["place"] = 0.7
        if clause.frequency:
            slots["frequency"] = 0.3
        if _can_front_object(clause):
            slots["object"] = 0.7
        if isinstance(clause.indirect, NounPhrase) and clause.indirect.determiner.german:
            slots["indirect"] = 0.5
        return self._weighted(slots)

    # What belongs to a verb

    def _tense(self, clause: Clause, tenses: dict[Tense, float]) -> None:
        """A tense or a modal verb; with `du`, as in speech, a perfect in place of the past."""
        if "present" in tenses and self._happens(0.15):
            can_want = "p" in clause.verb.subjects and clause.verb.frame != "copula"
            clause.modal = self._pick(words.MODALS if can_want else words.TENDENCIES)
            if clause.modal.past and "past" in tenses and self._happens(0.35):
                clause.tense = "past"
            self._room -= 1
            return
        clause.tense = self._weighted(tenses)
        spoken = isinstance(clause.subject, Pronoun) and clause.subject.person is words.DU
        if clause.tense == "past" and spoken and clause.verb.frame != "copula":
            clause.tense = "perfect"
        self._room -= clause.tense not in ("present", "past")

    def _polarity(self, clause: Clause) -> None:
        """`nicht` or an adverb such as `nie`, never both; `kein` is left to the object."""
        if clause.verb.frame not in IMPERSONAL and self._spend(1, 0.08):
            clause.negated = True
        elif self._spend(1, 0.07):
            clause.frequency = self._pick(self._choices.phrases["frequency"])

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

    def _subject(self, verb: Verb, depth: int) -> Nominal:
        """Draw a subject, or an `es` that stands for nobody."""
        if verb.frame in IMPERSONAL:
            return Pronoun(words.ES_THERE if verb.frame == "existential" else words.ES)
        if "p" in verb.subjects and (short := self._one_word(words.PERSONS, 0.22, 0.06)):
            return short
        return self._argument(self._choices.arguments[verb, "subject"], depth)

    def _objects(self, clause: Clause, depth: int) -> None:
        """The objects that the verb of a clause wants and that are not there yet."""
        if clause.verb.objects and not clause.object:
            clause.object = self._object(clause, "object", depth)
        if clause.verb.frame == "ditransitive":
            clause.indirect = self._object(clause, "indirect", depth)

    def _object(self, clause: Clause, role: Argument, depth: int) -> Nominal:
        verb = clause.verb
        classes = verb.objects if role == "object" else frozenset("p")
        second = role == "indirect" and isinstance(clause.object, Pronoun)  # two change their order
        if "p" in classes and verb.frame != "existential" and not second:
            # an object that is its own subject would be reflexive
            subject = clause.subject.person if isinstance(clause.subject, Pronoun) else None
            others = [p for p in words.PERSONS if "object" in p.english and p is not subject]
            if short := self._one_word(others, 0.12, 0.04):
                return short
        return self._argument(
            self._choices.arguments[verb, role],
            depth,
            definite=clause.negated,
            negatable=not clause.negated and not clause.frequency,
        )

    def _one_word(
        self, persons: Sequence[Person], pronoun: float, name: float
    ) -> Pronoun | Name | None:
        """A pronoun or a name, by these chances: one of the two words that every frame reserves."""
        nominal: Pronoun | Name | None = None
        if self._happens(pronoun):
            nominal = Pronoun(self._pick(persons))
        elif self._happens(name):
            nominal = Name(self._pick(words.NAMES))
        self._room += nominal is not None
        return nominal

    def _predicate(self, clause: Clause) -> Predicate:
        """An adjective that fits the subject's noun; a joined subject is cut to its left half."""
        if isinstance(clause.subject, Coordination):
            clause.subject = clause.subject.left
        fitting = self._choices.predicates
        if isinstance(clause.subject, NounPhrase):
            noun = clause.subject.noun
        else:
            noun = self._pick([noun for noun in words.nouns_of("p") if fitting[noun]])
        predicate = Predicate(self._pick(fitting[noun]))
        if predicate.adjective.comparative != "-" and self._spend(3, 0.25):
            predicate.standard = self._noun_phrase([noun])
        return predicate

    def _adverbials(self, clause: Clause) -> None:
        """Draw where, with whom, how and when, each by chance."""
        frame, phrases = clause.verb.frame, self._choices.phrases
        if frame == "motion" and self._spend(3, 0.6):
            clause.place = self._place(words.DIRECTIONS)
        elif frame not in (*EMBEDDING, "copula") and self._spend(3, 0.12):
            clause.place = self._place(words.PLACES)
        if frame in ("intransitive", "motion") and self._spend(3, 0.12):
            people = self._noun_phrase(words.nouns_of("p"), adverbial=True)
            clause.companion = Prepositional(self._pick(words.COMPANIONS), people)
        if frame in ("intransitive", "motion", "accusative") and self._spend(1, 0.12):
            clause.manner = self._pick(phrases["manner"])
        if self._spend(2, 0.2):
            tense = "past" if clause.tense in PAST else clause.tense
            clause.time = self._pick((*phrases[tense], *phrases["anytime"]))

    def _place(self, prepositions: Sequence[Preposition]) -> Prepositional:
        place = self._noun_phrase(words.nouns_of("l"), adverbial=True)
        return Prepositional(self._pick(prepositions), place)

    # Noun phrases

    def _argument(
        self, nouns: Sequence[Noun], depth: int, *, definite: bool = False, negatable: bool = False
    ) -> NounPhrase | Coordination:
        """A subject or object with all it can have; `kein` only where the clause is not negated."""
        if negatable and self._happens(0.08):
            noun = self._pick(nouns)
            return self._modified(NounPhrase(noun, self._number(noun), words.NO))
        phrase = self._noun_phrase(nouns, definite=definite)
        others = [noun for noun in nouns if noun is not phrase.noun]
        if others and self._spend(3, 0.07):
            return Coordination(phrase, self._noun_phrase(others, definite=definite))
        nobody = "p" not in phrase.noun.classes and phrase.determiner is words.DEFINITE
        if nobody and self._spend(2, 0.12):  # `das Haus der Frau`: the article shows the genitive
            determiner = self._pick((words.DEFINITE, words.DEFINITE, *words.POSSESSIVES))
            noun = self._pick(words.nouns_of("p"))
            phrase.possessor = self._modified(NounPhrase(noun, self._number(noun), determiner))
        phrase.relative = self._relative(phrase.noun, phrase.number, depth + 1)
        return phrase

    def _noun_phrase(
        self, nouns: Sequence[Noun], *, definite: bool = False, adverbial: bool = False
    ) -> NounPhrase:
        """A noun with determiner, number and adjectives. In an adverbial, the case must show."""
        noun = self._pick(nouns)
        number = self._number(noun)
        determiner = self._determiner(noun, number, definite=definite, adverbial=adverbial)
        phrase = NounPhrase(noun, number, determiner)
        by_itself = determiner in (words.DEFINITE, words.BARE, *words.POSSESSIVES)
        if number == "pl" and not adverbial and by_itself and self._happens(0.3):
            phrase.numeral = 2 + int(self.random() * (11 if self._happens(0.6) else 98))
            self._room -= 1
        return self._modified(phrase)

    def _modified(self, phrase: NounPhrase) -> NounPhrase:
        adjectives = self._choices.adjectives[phrase.noun]
        if phrase.determiner not in (words.DEFINITE, words.THIS, *words.POSSESSIVES):
            # `der nächste Hund`, hardly `jeder nächste Hund`
            adjectives = self._choices.predicates[phrase.noun]
        if adjectives and self._spend(1, 0.4):
            first = self._pick(adjectives)
            phrase.adjectives = (first,)
            others = [entry for entry in adjectives if entry is not first]
            if others and first.comparative != "attributive" and self._spend(1, 0.15):
                phrase.adjectives = (self._pick(others), first)
        return phrase

    def _number(self, noun: Noun) -> Number:
        return "pl" if self._happens(0.3) and not noun.mass else "sg"

    def _determiner(
        self, noun: Noun, number: Number, *, definite: bool, adverbial: bool
    ) -> Determiner:
        weights = {words.DEFINITE: 8.0, words.THIS: 1.0}
        weights |= dict.fromkeys(words.POSSESSIVES, 0.6)
        if noun.mass:
            if not definite:
                weights[words.BARE] = 5.0
        elif number == "sg":
            weights[words.EVERY] = 0.5
            if not definite:
                weights[words.INDEFINITE] = 6.0
        elif not adverbial:
            weights |= dict.fromkeys(words.QUANTIFIERS, 0.5)
            if not definite:
                weights[words.BARE] = 4.0
        return self._weighted(weights)


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
