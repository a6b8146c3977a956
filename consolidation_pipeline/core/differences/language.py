"""Word lists of languages, by the keys of their files ``languages/*.toml``, which ``language_loader.py`` reads.

Keys of ``<code>_synonyms.toml``:

forms: A word and those of its forms that the stemmer does not know, a word a line: "write, wrote, written".
groups: Words that may stand for each other in one of their meanings, a meaning a line. A word may be in several: what
    stands for it in one meaning does not stand for what stands for it in another.

Keys of ``<code>.toml``. An entry of several words is a phrase.

stemmer: Name of a Snowball stemmer; without one, words are equal as written.
spellings: Endings that are spelled in two ways = the ending that is read: "ised" = "ized".
labels: Openings that say nothing, such as "Note:".
openings: Words that say nothing if they open a sentence: "always".
addressees: Pronouns behind which a demand may open a sentence, and one of ``openings`` follow: "you should always".
remarks: Words of openings and sentences about the note itself: "Note to self:", "Seen again today."
questions: What is asked for = words that ask for it.
inversions: Two words that ask if they open a sentence: "is there", "did you".
requests: Words near the opening of a sentence that asks: "tell me".
light: Words without a meaning of their own.
light_verbs: Light verbs, and auxiliaries that are verbs too, for which synonyms may stand: has, owns.
prepositions, genitives, determiners: Those of them that open a phrase, join two nouns, or stand before a noun.
perfects: Auxiliaries that tell of the past before a participle: "has moved".
approximations: Words that make a number inexact, and are prepositions before anything else: "about".
comparisons: Verbs behind which "against" is "with": "tested against real data".
copula_clitic: Clitic and the form of "be" that it stands for before one of ``after_copula``: "the light's on".
copulas: Forms of "be" between two names of one thing, which may change sides: "our vet is Ann", "Ann is our vet".
participle_prepositions: Participles that are prepositions, unless an auxiliary is before them: "built using make".
has_late_focus: True if "only" and particles stand behind their word: 資料だけ, 資料を.
spans: Prepositions before a time that tell how long: "for an hour".
attributes: Prepositions that tell of the noun before them: "the man with the key".
cases: Articles of nouns, or particles = subject or object: der = "subject", den = "object".
opposed_prepositions: Pairs of prepositions that tell other things of the same word: for, with.
opposed_places, holders: Pairs of prepositions that tell other places of one thing that holds others: in, on a box.
undoing: Verbs that undo what the verb before "and" tells: "rolled out and rolled back".
amounts: Prepositions before a number = what it is: um = "change", auf = "result".
sequence_words: Words by which clauses tell steps in their order: then.
first_steps: Words that tell no more than one of these behind the first step: "open it first, then rinse it".
additions: Openings of what another phrase adds to = those phrases: "not only .., but also ..".
copula_kinds: Forms of "be" = which of two verbs they are, of a language that has two: ser, estar.
owners: Possessives = the owner: "his", "her".
subjects, objects: Pronouns = the person: we, us. The speaker is one person, alone or not. Those in both have no case.
adverbial_negations: Negations beside a verb, which deny what stands behind them: not, but not "no backups".
negative_articles, definites: Articles before a noun of which there is none, and of one that is known: no, the.
late_negations: Those of them behind their verb: "ne démarre plus".
possessives: Genitives behind the owner: "Ann's dog".
articles, relatives: Those of them that are "a" and may stand for 1, and those that open a relative clause.
genders: Pronouns of a person = he or she.
distributives, singles: Words for each of several, and for one thing that each or all of them have: each, one.
counts: Words before a noun = how many or which of a kind: both = "two", an = "a", one, any, same.
causatives: Verbs by which others do what the verb beside them tells: let.
genitive_heads: Nouns that stand for what their genitive names: "the city of Leipzig", "the use of tabs".
consequences: Words and phrases after a cause: therefore.
effects, additives: Openings of a sentence that tells what the one before it causes, or one thing more: "this leads to".
circumstances: Prepositions before a place or time where something holds.
generic_articles: Articles before nouns that may stand for all of their kind: "les clients".
has_gendered_relatives: True if relative pronouns, behind a comma, have the gender of their noun.
list_openers: Words before a list whose items may stand in any order: "buy eggs, milk and flour".
ordering: Words of a text in which the order of a list counts: steps, first.
habitual_articles: Articles before a day that is each such day: "le lundi".
late_spans: Words that say nothing behind a time: "sieben Tage lang".
list_references: Words that refer to the order of a list: the former, respectively.
complementizers: Words that open what a clause before them tells of: "we were told that".
closing_complementizers: Words that end what the verb behind them tells of: 満員だと聞いた.
closings: Ends of sentences that say nothing: ことがわかった.
tools: Verbs before a tool, "use pip to install it" = the preposition of "install it using pip".
alternations: Words that are two between "every" and a time: "every other week".
particles: Words that belong to a verb further ahead in the clause: "switch the lamp off", "schaltet die Lampe aus".
has_prefixes: True if a particle and its verb are one word in other places: ausschalten.
verb_first: Verbs that may open a condition = the conjunction that they stand for: "wird er krank, ..." is "wenn".
nominatives, weak_objects, open_pronouns: Pronouns that are subjects, objects, or either, of a language whose verb
    stands second, so that its subject may be behind it; without ``nominatives`` it does not.
impersonals: Words before a verb that names no one who does it: se, on, "hay que".
intransitives: Verbs without an object, whose subject may stand on either side.
deeds, thing_endings: Verbs of what only persons do, and endings of nouns that are none: "die Rechnung bezahlt Ana".
command_endings: Endings of verbs that give an order where they open a sentence: "starte", "envoyez".
passives: Auxiliaries of what is done, not of what it is: wird.
titles: Nouns before a name: "Frau Keller", "Raum Elbe".
object_markers: Words before an object that is a person: "a la gestora".
object_articles: Articles of an object before its verb = the pronoun that names it again: "la factura la paga Ana".
demands: Adjectives of "es ist nötig, ihn zu prüfen" = the verb of "man muss ihn prüfen".
sensed: Verbs with which "ist zu" tells what can be done: "ist zu sehen", unlike "ist zu prüfen".
noun_markers: Markers of clauses that may stand before a noun alone: "wegen Regen", "seit Mai".
predicatives: Particles behind a form of "be" = the participle that they stand for: "zu" is "geschlossen".
modals: Forms of verbs of modality: muss.
passive_auxiliaries, agents, participles, participle_endings: Signs of a passive clause.
has_ordinal_dots: True if a number with a full stop is an ordinal: "am 3. März".
degrees: Quantities = the adverb that they are before a comparative or a participle: "etwas höher".
graded_endings: Endings of comparatives, and of participles that tell how much: "höher", "gestiegen".
gerund_verbs, gerund_endings: Verbs that demand what the gerund after them tells, "needs cleaning", and its endings.
has_late_participles: True if words may stand between an auxiliary and its participle.
past_forms: Verbs that tell what was done and are no present form, also those that are participles too: sent, took.
past_endings: Endings of such verbs, beside those of participles.
future_endings: Endings of verbs that tell what will be done: "borrará".
imperfect_endings: Endings of verbs that tell what held or was usual: "revisaba".
conditional_endings: Endings of verbs that tell what would be done: "enviaría".
infinitive_endings, infinitive_marks: Endings of infinitives, and words before them: "to".
preterite_endings: Endings of verbs that tell what was done and are no participles alone: "moved".
finite_endings: Endings of present forms in a language where others may be nouns or adjectives: "fixes".
inverted_endings: Endings of verbs whose subject may follow them, and that no adjective before a noun has: "liest Ana".
plural_endings: Endings of nouns before which a form without such an ending is a present one: "nurses use".
ambiguous_endings: Endings of forms that may be present or past: "llegamos".
futures, perfect_auxiliaries: Auxiliaries of what will be done, and of what has been: will, has.
faults: Verbs of what goes wrong or was observed, which a note tells in the present or the past: "it fails".
lasting: Endings of verbs that tell what lasts = True if they tell of the past: していた.
ongoing: Words for what is going on = the one of them that the other text has at least: 正在 = "在".
final_verbs: Last signs of sentences = True if they tell of the past, in a language with the verb at the end.
possession: Forms of "have" or of what stands for it = True if they tell of the past.
past_modals: Words of modality, and first words of such phrases, that tell of the past: durfte, had to.
done: Words beside such a verb, or beside any in a script without blanks, by which it tells so: hat, a été, 已.
undergone: Verbs of what is done to things and what none of them does, before which a word of the passive says nothing.
passing: Adverbs between the two.
floating: Words that may stand on either side of a word in a script without blanks: 仓库的门上锁, 仓库门在晚上上锁.
stem_verbs: Japanese verbs in their dictionary form, whose stems are read as one word.
hyphened: Words with a hyphen that mean another thing without it: re-sign.
split_negations: First word of a negation in two parts = the second one = a word of the lists that means both.
times, time_adverbs: Nouns of time, which may stand anywhere in a clause after a word such as "every", and adverbs.
demonstratives: Words before nouns of time that tell when: "this morning".
date_articles: Articles before days and dates that tell when: "el viernes".
order_adverbs: Ordinals that are adverbs where they open or end a clause: "first run it".
compound_links: What may join the two nouns of a compound: Größenlimit.
coordinators: Words that add a clause: and.
alternatives: Words between alternatives, which may stand in any order: or.
adverb_endings: Endings of words that may stand anywhere in a clause.
family_endings: Endings after which stems are of one family: show and shown. The stemmer leaves them.
numbers, ordinals, days, months: As their names say.
number_heads: Last parts of numbers in one word = their values; others may stand before and behind "hundert".
number_links: Words between the parts of a number = from which number on they may follow: "treinta y cinco".
has_scores: True if numbers go on from 60 to 79 and from 80 to 99: "soixante-quinze".
short_days, short_months: Their short forms, which have a capital: "Mon".
signs: Signs that stand for a word: "&" = "and"; "9+" is a plus sign after a number, "!x" a denial in code.
sources: Words before who says something = the verb behind them: "according to the vet, ..", "the vet says ..".
phrasings: Phrases = those that they are read as: "un cuarto de hora" = "quince minutos", なきゃ = なければ.
respelled: Letters = how they are written where a keyboard lacks them: ü = "ue".
contractions: Words that stand for several: "don't" = "do not", "invalid" = "not valid".
units: Names of units = their English short forms.
abbreviations: Words whose full stop ends no sentence.
clitics, elisions: Endings, and beginnings before an apostrophe, that are words of their own: n't, l'.
false_past_forms: Present forms with the ending of a past one: need.
has_noun_capitals: True if all nouns are written with a capital.
naming: Words before a name, whatever its letters are: "the table is called release".
has_decimal_comma: True if a comma stands before decimals and a full stop between thousands: "5.000", "2,5 GB".
clock.at: Words before an hour with its unit that is a time of day: "à 15 h".
clock.before, clock.after: Words before or behind an hour = minutes to add: "half past" = 30.
clock.hours: Words that may stand behind an hour.
clock.durations: Words behind a number of hours that is no time of day.
clock.halves, clock.halves_before: Words behind or before a time = half of the day: am, pm, or night.
markers: Class = words that govern what follows them.
cues.<category>: Pole = words that change what is claimed. Poles of a category contradict each other.
denying_verbs: Words of the negative pole that are verbs: beside another verb they replace it.
neutral: Category = poles that may stand in one text alone.
synonyms.groups: Words that are read as one: spellings, forms, abbreviations, and words of one meaning in any sentence.
antonyms.pairs: Words that must not stand for each other.
antonyms.things: Those of them that name things: what is said of one contradicts nothing that is said of the other.
rewriting.rules: Patterns of signs and what stands in their place, ``\\1`` for what a group matched; ``rewriting.py``.
rewriting.parts: Name = what stands for it in braces in these patterns, and in the parts below.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

NAMES = {"en": "English", "de": "German", "es": "Spanish", "fr": "French", "zh": "Chinese", "ja": "Japanese"}
LANGUAGES = tuple(NAMES)
# Languages of one alphabet, between which function words decide.
LATIN = LANGUAGES[:4]

_CJK = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HIRAGANA = "\u3041-\u309f"
_KATAKANA = "\u30a1-\u30ff"
# A word of an alphabet with its inner apostrophes and hyphens, a run of katakana, or one ideograph or hiragana.
WORD = re.compile(
    rf"[{_KATAKANA}]+|[{_CJK}{_HIRAGANA}]|[^\W\d_{_CJK}{_HIRAGANA}{_KATAKANA}]+(?:['-][^\W\d_{_CJK}{_HIRAGANA}{_KATAKANA}]+)*"
)
IDEOGRAPH = re.compile(f"[{_CJK}]")
KANA = re.compile(f"[{_HIRAGANA}{_KATAKANA}]")
UNSPACED = re.compile(f"[{_CJK}{_HIRAGANA}{_KATAKANA}]")
# Letters of a verb in the future: "irá" is among the cues.
_SHORTEST_FUTURE = 5


@dataclass(frozen=True, slots=True)
class Phrase:
    """Meaning of a word or phrase. ``role``: light, cue, marker, label or synonym; ``key`` and ``pole`` name it."""

    role: str
    key: str = ""
    pole: str = ""


# Meaning of each phrase, which is a tuple of words in lower case.
PhraseMeanings = Mapping[tuple[str, ...], str]
# What stands in the place of a match: groups of it, by their numbers, and signs.
Template = tuple[int | str, ...]


@dataclass(frozen=True)
class Clock:
    """Words of times of day, by the keys of a language's table ``clock``."""

    at: PhraseMeanings
    before: PhraseMeanings
    hours: PhraseMeanings
    durations: PhraseMeanings
    after: PhraseMeanings
    halves: PhraseMeanings
    halves_before: PhraseMeanings

    @cached_property
    def openings(self) -> frozenset[str]:
        """First words of what stands before an hour."""
        return frozenset(words[0] for words in (*self.before, *self.halves_before))


@dataclass(frozen=True)
class FunctionWords:
    """Words by which a language is told: words without a meaning of their own, and what they are joined by."""

    light: frozenset[str]
    elisions: frozenset[str]
    clitics: Mapping[str, str]

    def is_light(self, word: str) -> bool:
        """Return True if a word in lower case is a function word or is joined with one: n't, l'."""
        if word in self.light:
            return True
        return "'" in word and (word.partition("'")[0] in self.elisions or word.endswith(tuple(self.clitics)))


@dataclass(frozen=True)
class Language(FunctionWords):
    """Word lists of a language. Phrases are tuples of words in lower case, of stems those with a synonym.

    ``phrase_sizes`` and ``synonym_sizes`` are the lengths of the longest ones that begin with a word. ``synonyms`` are
    the words that are read as another one, ``groups`` the groups of words that may stand for each other.
    """

    code: str
    stemmer: str | None
    stem: Callable[[str], str]
    phrases: Mapping[tuple[str, ...], Phrase]
    phrase_sizes: Mapping[str, int]
    synonym_phrases: Mapping[tuple[str, ...], Phrase]
    synonym_sizes: Mapping[str, int]
    numbers: Mapping[str, float]
    units: Mapping[str, str]
    ordinals: Mapping[str, int]
    calendar: Mapping[str, str]
    short_calendar: Mapping[str, str]
    signs: Mapping[str, str]
    contractions: Mapping[str, str]
    sources: Mapping[str, str]
    phrasings: PhraseMeanings
    phrasing_sizes: Mapping[str, int]
    respelled: Mapping[str, str]
    bare: Mapping[str, str]
    abbreviations: frozenset[str]
    passive_auxiliaries: frozenset[str]
    agents: frozenset[str]
    perfects: frozenset[str]
    approximations: frozenset[str]
    comparisons: frozenset[str]
    copula_clitic: tuple[str, ...]
    after_copula: frozenset[str]
    demonstratives: frozenset[str]
    prepositions: frozenset[str]
    genitives: frozenset[str]
    determiners: frozenset[str]
    articles: frozenset[str]
    relatives: frozenset[str]
    copulas: frozenset[str]
    participle_prepositions: frozenset[str]
    particles: frozenset[str]
    has_prefixes: bool
    verb_first: Mapping[str, str]
    modals: frozenset[str]
    nominatives: frozenset[str]
    weak_objects: frozenset[str]
    open_pronouns: frozenset[str]
    command_endings: tuple[str, ...]
    passives: frozenset[str]
    titles: frozenset[str]
    object_articles: Mapping[str, str]
    object_markers: frozenset[str]
    demands: Mapping[str, str]
    sensed: frozenset[str]
    noun_markers: frozenset[str]
    predicatives: Mapping[str, str]
    thing_endings: tuple[str, ...]
    deeds: frozenset[str]
    impersonals: frozenset[str]
    intransitives: frozenset[str]
    times: frozenset[str]
    time_adverbs: frozenset[str]
    openings: frozenset[str]
    addressees: frozenset[str]
    coordinators: frozenset[str]
    alternatives: frozenset[str]
    adverb_endings: tuple[str, ...]
    family_endings: frozenset[str]
    participle_endings: tuple[str, ...]
    participles: frozenset[str]
    degrees: Mapping[str, str]
    graded_endings: tuple[str, ...]
    gerund_verbs: frozenset[str]
    gerund_endings: tuple[str, ...]
    has_ordinal_dots: bool
    has_late_participles: bool
    past_forms: frozenset[str]
    past_endings: tuple[str, ...]
    future_endings: tuple[str, ...]
    imperfect_endings: tuple[str, ...]
    conditional_endings: tuple[str, ...]
    infinitive_endings: tuple[str, ...]
    infinitive_marks: frozenset[str]
    preterite_endings: tuple[str, ...]
    finite_endings: tuple[str, ...]
    inverted_endings: tuple[str, ...]
    plural_endings: tuple[str, ...]
    ambiguous_endings: tuple[str, ...]
    futures: frozenset[str]
    perfect_auxiliaries: frozenset[str]
    faults: frozenset[str]
    past_modals: frozenset[str]
    possession: Mapping[str, bool]
    lasting: Mapping[str, bool]
    ongoing: Mapping[str, str]
    final_verbs: Mapping[str, bool]
    done: tuple[str, ...]
    undergone: tuple[str, ...]
    passing: tuple[str, ...]
    floating: frozenset[str]
    habitual_articles: frozenset[str]
    late_spans: frozenset[str]
    hyphened: frozenset[str]
    split_negations: Mapping[str, Mapping[str, str]]
    denying_verbs: frozenset[str]
    neutral: frozenset[tuple[str, str]]
    synonyms: Mapping[str, str]
    groups: Mapping[str, frozenset[int]]
    verbs: frozenset[str]
    antonyms: frozenset[frozenset[str]]
    things: frozenset[str]
    opposites: Mapping[str, frozenset[str]]
    light_verbs: frozenset[str]
    questions: Mapping[str, str]
    inversions: frozenset[tuple[str, ...]]
    requests: tuple[str, ...]
    remarks: frozenset[str]
    clock: Clock
    rewriting: tuple[tuple[re.Pattern[str], Template], ...]
    false_past_forms: frozenset[str]
    has_noun_capitals: bool
    naming: frozenset[str]
    has_decimal_comma: bool
    has_scores: bool
    tools: Mapping[str, str]
    alternations: frozenset[str]
    date_articles: frozenset[str]
    order_adverbs: frozenset[str]
    compound_links: tuple[str, ...]
    possessives: frozenset[str]
    has_late_focus: bool
    spans: frozenset[str]
    attributes: frozenset[str]
    cases: Mapping[str, str]
    adverbial_negations: frozenset[str]
    late_negations: frozenset[str]
    negative_articles: frozenset[str]
    definites: frozenset[str]
    opposed_prepositions: frozenset[frozenset[str]]
    opposed_places: frozenset[frozenset[str]]
    holders: frozenset[str]
    undoing: frozenset[str]
    amounts: Mapping[str, str]
    owners: Mapping[str, str]
    sequence_words: frozenset[str]
    first_steps: frozenset[str]
    additions: Mapping[str, Sequence[str]]
    copula_kinds: Mapping[str, str]
    subjects: Mapping[str, str]
    objects: Mapping[str, str]
    list_references: frozenset[str]
    list_openers: frozenset[str]
    number_links: Mapping[str, int]
    ordering: frozenset[str]
    complementizers: frozenset[str]
    closing_complementizers: frozenset[str]
    closings: frozenset[str]
    has_gendered_relatives: bool
    generic_articles: frozenset[str]
    circumstances: frozenset[str]
    genders: Mapping[str, str]
    distributives: frozenset[str]
    singles: frozenset[str]
    counts: Mapping[str, str]
    causatives: frozenset[str]
    genitive_heads: frozenset[str]
    consequences: frozenset[str]
    effects: frozenset[str]
    additives: frozenset[str]

    @cached_property
    def conjunctions(self) -> frozenset[str]:
        """Words that join the items of a list, or two statements: and, or."""
        return self.coordinators | self.alternatives

    def is_past(self, word: str) -> bool:
        """Return True if a word in lower case is the form of a verb that tells what was done: sent, backed up."""
        verb = word.partition(" ")[0]
        is_past = verb in self.past_forms or verb in self.participles or verb.endswith(self.past_endings)
        return is_past and verb not in self.false_past_forms

    def is_future(self, word: str) -> bool:
        """Return True if a word in lower case is the form of a verb that tells what will be done: "borrará"."""
        return len(word) >= _SHORTEST_FUTURE and word.endswith(self.future_endings)

    def is_participle(self, word: str) -> bool:
        """Return True if a word in lower case is a participle: sent, moved."""
        return word in self.participles or word.endswith(self.participle_endings)

    def is_adverb(self, word: str) -> bool:
        """Return True if a word in lower case may stand anywhere in a clause: quickly, but not daily, a known word."""
        return word.endswith(self.adverb_endings) and self.stem(word) not in self.synonyms

    def is_verb(self, word: str) -> bool:
        """Return True if a word in lower case is a form of a verb of the lists."""
        return self.stem(word) in self.verbs or self.is_participle(word)

    def read_word(self, word: str) -> str:
        """Return the key of a word in lower case: its stem, or the stem that stands for its synonyms."""
        stem = self.stem(word)
        return self.synonyms.get(stem, stem)

    def has_verb(self, verb: str, particle: str) -> bool:
        """Return True if a verb and a particle in lower case are one verb of the lists: "switch off", "ausschalten"."""
        if self.has_prefixes:
            return self.stem(particle + verb) in self.verbs
        return (self.stem(verb), self.stem(particle)) in self.synonym_phrases

    def may_replace(self, one: str, other: str) -> bool:
        """Return True if two keys of words have a meaning in common."""
        return not self.groups.get(one, frozenset()).isdisjoint(self.groups.get(other, ()))


def split_parts(word: str, elisions: frozenset[str]) -> list[tuple[int, str]]:
    """Return the parts of a word, which an elision or hyphens separate, with their offsets: l'avant-garde has three."""
    head, apostrophe, rest = word.partition("'")
    parts = [head, *rest.split("-")] if apostrophe and rest and head.lower() in elisions else word.split("-")
    offsets = accumulate((len(part) + 1 for part in parts), initial=0)
    return list(zip(offsets, parts, strict=False))


def is_unspaced(word: str) -> bool:
    """Return True for a word of a script without blanks between words."""
    return word > "\u2e80"


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case."""
    return tuple([word.lower() for word in WORD.findall(text.replace("’", "'"))])
