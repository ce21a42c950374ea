"""The toy grammar: sentences that a speaker has read, and paradigms in its two languages."""

from __future__ import annotations

import pytest

from translate.extras.toy import ToyPair, english, german, toy_pairs, words
from translate.extras.toy.words import Case, Determiner, Gender, Noun, Number, Verb, lexicon


def noun(german_lemma: str) -> Noun:
    return next(entry for entry in lexicon().nouns if entry.german == german_lemma)


def verb(lemma: str) -> Verb:
    return next(entry for entry in lexicon().verbs if entry.lemma == lemma)


@pytest.fixture(scope="module")
def pairs() -> dict[str, ToyPair]:
    drawn = toy_pairs(train=2000, dev=0, test=0, min_words=5, max_words=15, seed=1)["train"]
    return {pair.source: pair for pair in drawn}


# of the first pairs that are drawn: the source, its translation, and links as a reader draws them
READ = [
    (
        "vor einem Wohnzimmer kann unser Fuchs nicht vorsichtig stolpern .",
        "our fox cannot stumble carefully in front of a living room .",
        "vor-in vor-front vor-of einem-a Wohnzimmer-living Wohnzimmer-room kann-cannot unser-our "
        "Fuchs-fox nicht-cannot vorsichtig-carefully stolpern-stumble .-.",
    ),
    (
        "die Schublade wird nicht vom geheimnisvollen Piloten gewaschen .",
        "the drawer is not washed by the mysterious pilot .",
        "die-the Schublade-drawer wird-is nicht-not vom-by vom-the geheimnisvollen-mysterious "
        "Piloten-pilot gewaschen-washed .-.",
    ),
    (
        "Honig , den Großväter nicht aßen , ist gelegentlich frisch .",
        "honey that grandfathers did not eat is occasionally fresh .",
        "Honig-honey den-that Großväter-grandfathers nicht-not aßen-did aßen-eat ist-is "
        "gelegentlich-occasionally frisch-fresh .-.",
    ),
    (
        "vor kurzem hat Maria versprochen , den Elefanten mitzubringen .",
        "Maria promised recently to bring along the elephant .",
        "vor-recently kurzem-recently hat-promised Maria-Maria versprochen-promised den-the "
        "Elefanten-elephant mitzubringen-to mitzubringen-bring mitzubringen-along .-.",
    ),
    (
        "waren zwölf Zwerge gefährlicher als die Zwerge ?",
        "were twelve dwarfs more dangerous than the dwarfs ?",
        "waren-were zwölf-twelve Zwerge-dwarfs gefährlicher-more gefährlicher-dangerous als-than "
        "die-the Zwerge-dwarfs ?-?",
    ),
    (
        "wir waschen die trockene Haustür meiner Fischer .",
        "we wash my fishermen's dry front door .",
        "wir-we waschen-wash trockene-dry Haustür-front Haustür-door meiner-my Fischer-fishermen's "
        ".-.",
    ),
    (
        "muss ein Pinguin dem Riesen ähneln ?",
        "does a penguin have to resemble the giant ?",
        "muss-does muss-have muss-to ein-a Pinguin-penguin dem-the Riesen-giant ähneln-resemble "
        "?-?",
    ),
    (
        "um mich hat ein Kind sich neben den Hotels gekümmert .",
        "a child took care of me next to the hotels .",
        "um-care um-of mich-me hat-took ein-a Kind-child sich-took neben-next neben-to den-the "
        "Hotels-hotels gekümmert-took .-.",
    ),
    (
        "weil ein Anwalt träumt , rennen kranke wilde Bären manchmal .",
        "because a lawyer dreams , sick wild bears sometimes dash .",
        "weil-because ein-a Anwalt-lawyer träumt-dreams ,-, rennen-dash kranke-sick wilde-wild "
        "Bären-bears manchmal-sometimes .-.",
    ),
    (
        "dieser Adler isst diesen warmen Pilz nicht auf .",
        "this eagle does not eat up this warm mushroom .",
        "dieser-this Adler-eagle isst-does isst-eat isst-up diesen-this warmen-warm Pilz-mushroom "
        "nicht-not auf-eat auf-up .-.",
    ),
]


@pytest.mark.parametrize(("source", "target", "links"), READ, ids=[pair[0] for pair in READ])
def test_sentences_and_links_are_those_of_a_speaker(
    pairs: dict[str, ToyPair], source: str, target: str, links: str
) -> None:
    pair = pairs[source]
    assert pair.target == target
    left, right = source.split(" "), target.split(" ")
    assert " ".join(f"{left[i]}-{right[j]}" for i, j in pair.alignment) == links


@pytest.mark.parametrize(
    ("lemma", "forms"),
    [
        ("Mann", "Mann Mann Mann Mannes Männer Männern"),
        ("Junge", "Junge Jungen Jungen Jungen Jungen Jungen"),
        ("Königin", "Königin Königin Königin Königin Königinnen Königinnen"),
        ("Apfelbaum", "Apfelbaum Apfelbaum Apfelbaum Apfelbaums Apfelbäume Apfelbäumen"),
        ("Museum", "Museum Museum Museum Museums Museen Museen"),
        ("Auto", "Auto Auto Auto Autos Autos Autos"),
    ],
)
def test_german_nouns_decline(lemma: str, forms: str) -> None:
    cases = ["sg nom", "sg acc", "sg dat", "sg gen", "pl nom", "pl dat"]
    declined = [german.noun_form(noun(lemma), *case.split()) for case in cases]  # type: ignore[arg-type]
    assert declined == forms.split()


CONJUGATED = """
accusative:lesen: lese liest liest lesen, las lasest lasen, gelesen
accusative:halten: halte hältst hält halten, hielt hieltest hielten, gehalten
accusative:sammeln: sammle sammelst sammelt sammeln, sammelte sammeltest sammelten, gesammelt
accusative:ein laden: lade lädst lädt laden, lud ludest luden, eingeladen
accusative:besuchen: besuche besuchst besucht besuchen, besuchte besuchtest besuchten, besucht
intransitive:beten: bete betest betet beten, betete betetest beteten, gebetet
that:wissen: weiß weißt weiß wissen, wusste wusstest wussten, gewusst
copula:sein: bin bist ist sind, war warst waren, gewesen
"""  # I, you, she, they; in the past, she as I


@pytest.mark.parametrize("line", CONJUGATED.strip().split("\n"))
def test_german_verbs_conjugate(line: str) -> None:
    lemma, _, forms = line.rpartition(": ")
    present, past, participle = forms.split(", ")
    for tense, row, singular in (("present", present, (1, 2, 3)), ("past", past, (1, 2))):
        persons = [*((person, "sg") for person in singular), (3, "pl")]
        conjugated = [german.finite_form(verb(lemma), tense, *person) for person in persons]
        assert conjugated == row.split()
    assert german.participle_form(verb(lemma)) == participle


@pytest.mark.parametrize(
    ("determiner", "gender", "number", "case", "expected"),
    [
        (words.DEFINITE, "m", "sg", "nom", "der alte"),
        (words.DEFINITE, "f", "sg", "dat", "der alten"),
        (words.DEFINITE, "m", "pl", "acc", "die alten"),
        (words.INDEFINITE, "n", "sg", "acc", "ein altes"),
        (words.INDEFINITE, "m", "sg", "nom", "ein alter"),
        (words.NO, "n", "pl", "nom", "keine alten"),
        (words.THIS, "n", "sg", "dat", "diesem alten"),
        (words.BARE, "m", "pl", "nom", " alte"),
        (words.BARE, "n", "sg", "nom", " altes"),
        (words.QUANTIFIERS[0], "m", "pl", "nom", "alle alten"),
        (words.QUANTIFIERS[2], "m", "pl", "dat", "vielen alten"),
    ],
)
def test_german_determiners_and_adjectives_agree(
    determiner: Determiner, gender: Gender, number: Number, case: Case, expected: str
) -> None:
    old = next(entry for entry in lexicon().adjectives if entry.german == "alt")
    article = german.determiner_form(determiner, gender, number, case)
    attribute = german.adjective_form(old, determiner, gender, number, case)
    assert f"{article} {attribute}" == expected


def test_numbers_turn_around() -> None:
    numbers = (2, 12, 17, 30, 54)
    german_words, english_words = (
        " ".join(map(language.numeral_form, numbers)) for language in (german, english)
    )
    assert german_words == "zwei zwölf siebzehn dreißig vierundfünfzig"
    assert english_words == "two twelve seventeen thirty fifty-four"
