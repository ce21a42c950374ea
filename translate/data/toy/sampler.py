"""Random sentences of about a wanted length, from one side of the train/test split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from translate.data.toy import function_words as words
from translate.data.toy.arguments import EMBEDDING, PAST, ArgumentSampler
from translate.data.toy.chance import Chance
from translate.data.toy.lexicon import (
    Noun,
    Number,
    Tense,
    Verb,
)
from translate.data.toy.noun_phrases import NounPhraseSampler
from translate.data.toy.split import IMPERSONAL, choices
from translate.data.toy.syntax import (
    Adjunct,
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    Prepositional,
    Pronoun,
    Sentence,
    Slot,
    Trace,
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
EMBEDDED_WORDS = 4  # of the words of an embedding frame, those its embedded clause may use
RELATIVE_WORDS = 1  # two commas and a pronoun, in place of a noun phrase
IN_INFINITIVES = ("intransitive", "motion", "accusative", "dative", "ditransitive", "prepositional")
MAX_DEPTH = 3  # of clauses within clauses
MAX_QUESTION = 20  # words: a longer question would end far from its verb
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
        """What stands before the finite verb: only what its form or its place cannot confuse."""
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
    """Whether nominative and accusative differ, as in `der Mann`, `den Mann`."""
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
