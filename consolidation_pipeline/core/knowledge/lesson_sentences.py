"""Sentences of lessons: what each one is (a rule, a reason, a report, a heading ..), and rules without "I will"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.knowledge.weak_sentences import is_vague, names_wish_alone, refers_elsewhere
from consolidation_pipeline.core.text.boilerplate import is_placeholder
from consolidation_pipeline.core.text.sentence_cues import is_command, is_failure

# A fragment tells nothing alone: markup, a list in a line, a reference to what is not told, or that something is wrong.
Role = Literal["rule", "warning", "fact", "definition", "report", "subject", "question", "fragment"]

# Openings that name the kind of note: "Key insight:", "**Rule**:".
_LABEL = re.compile(
    r"^[*_#\s]*(?:key (?:insight|takeaway|lesson|point)s?|insight|lessons?(?: learned)?|rule|tip|note|takeaway|tl;?dr|"
    r"summary|best practice|important|reminder|regel|merke|hinweis|wichtig|lektion|regla|nota|consejo|importante|"
    r"lección|règle|conseil|leçon)[*_]*\s*[:：][*_\s]*",
    re.IGNORECASE,
)
_NEXT_TIME = (
    r"(?:(?:in|on|for|during) (?:my|the|our|any|all|every)? ?(?:next|future|subsequent) \w+|"
    r"next time(?: (?:I|we) [^,.]{1,60})?|in (?:the )?future|"
    r"going forward|from now on|to (?:fix|improve|solve|avoid|correct|address|prevent) [^,.]{1,60}|therefore|instead|"
    r"das nächste mal|nächstes mal|künftig|la próxima vez|en el futuro|la prochaine fois|à l'avenir)"
)
# "In the next trial, I will also look for .." and "I should always ..": an instruction to oneself.
_INTENTION = re.compile(
    rf"^(?P<time>{_NEXT_TIME},?\s+)?(?P<condition>(?:if|when|whenever|before|after|while|once|unless|"
    rf"until)\s[^,]+,\s+)?"
    r"(?:then )?(?:(?:I|we)(?:['’]ll| will| should| must| ought to)|we (?:need|have) to)"
    r"(?P<not>(?: not|n['’]t))?(?: (?:also|then|instead|just|simply|therefore|now|need to|have to|"
    r"make an effort to))*\s+"
    r"(?!have\s|be\s|been\s)(?P<rest>\S.*)$",
    re.IGNORECASE | re.DOTALL,
)
# What an attempt does instead of what it should, and what came of it: of the attempt, not of the lesson.
_OF_ATTEMPT = re.compile(
    r"(?:,? (?:but|however|while|whereas) (?:it|the (?:(?:current|provided|given) )?(?:implementation|code|function|"
    r"solution))\b"
    r"|,? as (?:indicated|shown|evidenced|demonstrated|suggested|seen) (?:by|in) the (?:\w+ ){0,2}?"
    r"(?:tests?|outputs?|results?)\b"
    r"|,? which is the opposite of\b"
    r"|,? (?:which |and )?(?:leading to|leads to|resulting in|results in|causing|causes) (?:an? |the |some |all )?"
    r"(?:incorrect|wrong|unexpected|inaccurate|invalid|failed|failing|failure|test|tests)\b)[^;]*$",
    re.IGNORECASE,
)
_SHOULD = re.compile(r"\b(?:should|must|needs? to|has to|have to)\b", re.IGNORECASE)
# Words that join a sentence to the one before, and a fix to the mistake that was told.
_CONNECTOR = re.compile(
    r"^(?:(?:however|additionally|also|moreover|furthermore|instead(?! of\b)|therefore|thus|hence|so|but|and|then|"
    r"similarly|finally|in addition|as a result|specifically|in particular|consequently)\b,?\s+|"
    r"to (?:fix|solve|resolve|address|correct) "
    r"(?:this|the|that|it|these|those|such)(?: \w+)?,\s+)+",
    re.IGNORECASE,
)
_PERSONS = (
    (re.compile(r"\b(and|then|but) (?:I|we)(?:['’]ll| will| should)(?: also| then)? "), r"\1 "),
    (re.compile(r"\bI am\b|\bI['’]m\b|\bI was\b"), "you are"),
    (re.compile(r"\b(?:I|me)\b"), "you"),
    (re.compile(r"\bmyself\b"), "yourself"),
    (re.compile(r"\bmy\b"), "your"),
    (re.compile(r"\bmine\b"), "yours"),
)
_FIRST_PERSON = re.compile(
    r"\b(?:I|I['’](?:m|ve|d|ll)|me|[Mm]y|mine|myself|[Ww]e|[Oo]ur|us|ours|ich|mein(?:e[mnrs]?)?|mir|mich|wir|unser(?:e[mnrs]?)?|"
    r"yo|"
    r"mi|mis|nosotros|nuestr[oa]s?|je|mon|ma|mes|nous|notre|nos)\b|\bj['’]"
)
_PAST = ignore_case(
    r"\b(?:was|were|had|did|wasn['’]t|weren['’]t|hadn['’]t|didn['’]t|tried|failed|went|took|found|got|made|noticed|"
    r"realized|realised|continued|ended|forgot|(?<!is )(?<!are )(?<!be )needed to|should have|"
    r"could have|caused|resulted|turned out|crashed|broke|shipped|"
    r"war|waren|wurde|wurden|hatte|hatten|fue|fueron|estaba|había|était|étaient|avait|avaient)\b",
)
# "Implemented x", "Fixed y": what was done, without a subject.
_DONE = re.compile(
    r"^\W*(?!(?:need|based|red|shared|embed|feed|speed|fixed-)\b)[A-Za-z]{2,}(?:[^e]ed|ied)\s", re.IGNORECASE
)
# "This implementation is incorrect because ..": a report on one attempt.
_VERDICT = re.compile(
    r"^\W*(?:in )?(?:the|this|my|our|your|current|previous)\b[^.]{0,60}?\b(?:implementation|solution|function|code|"
    r"approach|attempt"
    r"|algorithm|test|tests|build|change|commit|fix|bug|issue|problem|mistake|error|logic|method)\b[^.]{0,80}?"
    r"\b(?:is|are|was|were|lies?|does|do|did|has|had|fails?|failed|only|indicates?|uses?|tries|incorrectly|returns?|"
    r"checks?)\b",
    re.IGNORECASE,
)
# "The current code simply adds the rows": a report, whatever should be.
_OF_CURRENT = re.compile(
    r"^\W*(?:the|this|my|our|your) (?:current|existing|present|previous|original|given|provided) "
    r"(?:implementation|solution|function|code|approach|algorithm|logic|method|version)\b",
    re.IGNORECASE,
)
# "One possible approach is to read by page": a proposal.
_PROPOSAL = re.compile(
    r"^(?:one|another|an?|the) (?:(?:possible|potential|better|good|simple|correct|right|alternative) )?"
    r"(?:approach|way|option|solution|fix|remedy|workaround)(?: (?:for|of) [^,.]{1,40}?)? "
    r"(?:is|was|would be|could be|might be) to (?P<rest>(?!be\b|have\b)\S.*)$",
    re.IGNORECASE | re.DOTALL,
)
# "The implementation is incorrect because it only reads one line": what was tried, and did not work. The reason is what
# whoever tried it believes, so it is told as tried, not as advice against it.
TRIED, TO_TRY = "Tried, failed: ", "To try: "
_FAULT = re.compile(
    r"^\W*(?:the|this|my|our|your)\s+(?:(?:current|provided|given|above|previous|first|last)\s+)*"
    r"(?P<what>(?:\w+\s+)?(?:implementation|solution|code|function|approach|attempt|algorithm|logic|method|test)"
    r"(?:\s+(?:of|for)\s+(?:the\s+)?[\w`.()]+(?:\s+(?:function|method|problem|task))?)?)\s+"
    r"(?:(?:is|was)\s+(?:still\s+)?(?:incorrect|wrong|not\s+correct|flawed|faulty|broken|inefficient|incomplete)|"
    r"fail(?:s|ed)(?:\s+(?:the|some|all|most)(?:\s+\w+){1,2})?)\s+because\s+it\s+"
    r"(?P<rest>(?:(?:only|first|always|never|still|also|simply|incorrectly|wrongly|mistakenly)\s+)?"
    r"(?:does|do|did|[a-z]+s|[a-z]+ed)\b.*)$",
    re.IGNORECASE | re.DOTALL,
)
_ATTEMPT = ignore_case(
    r"\b(?:the|this|my|our) (?:\w+ )?(?:implementation|solution|attempt|algorithm)\b[^.]{0,60}?\b"
    r"(?:is|was|fail(?:s|ed)|does not|doesn['’]t)\b[^.]{0,20}?"
    r"(?:\b(?:incorrect|wrong|flawed|fail|because|pass)|\btests?\b)",
)
_NO_ARTICLE = re.compile(r"(?:\w+\s+)?(?:code|logic)\b", re.IGNORECASE)
# "The function should instead ..": what is right, rather than what was wrong.
_REQUIREMENT = re.compile(
    r"^\W*(?:in )?(?:the|this|a|an|each)\s"
    r"(?:(?!where\b|that\b|which\b|when\b|is\b|does\b|fails\b|returns\b|uses\b)[^\s,.;]+\s){1,7}?"
    r"(?:should|must|needs? to|has to|have to)\b",
    re.I,
)
_MISTAKE = ignore_case(r"\b(?:stuck|mistake|instead of|rather than|without|wrong(?:ly)?|continually|forgot)\b")
# A bug report: what it tells to do leads to the bug.
_REPRODUCTION = ignore_case(
    r"\b(?:steps (?:how )?to reproduce|to reproduce|reproduce[: ]|(?:actual|expected) (?:results?|behaviou?r)|"
    r"user agent|str:)",
)
# Commits: "fix(api): ..", "Merge branch ..", and verbs of a change without a full stop.
_COMMIT = re.compile(
    r"^\W*(?:(?:feat|fix|docs?|chore|refactor|tests?|perf|build|ci|style|revert|hotfix|wip)\b\s*(?:\([^)]*\))?!?:|"
    r"merge "
    r"(?:branch|pull|remote)|revert \")",
    re.IGNORECASE,
)
_CHANGE_VERB = re.compile(
    r"^\W*(?:add|added|fix|fixed|implement|implemented|remove|removed|update|updated|bump|merge|refactor|rename|create|"
    r"introduce|migrate|move|replace|improve|support|port|backport|upgrade|rewrite|wire|integrate|convert|extend|clean|"
    r"exempt|route|bind-mount|copy|drop|enable|disable|expose|revert|restore|make|allow|release|deploy|investigate|"
    r"test)\b",
    re.IGNORECASE,
)
_FIX = ignore_case(
    r"\b(?:(?:hot)?fix|repair|resolve|restore|correct|bug|error|fail|crash|missing|broken|wrong|leak|prevent)\w*"
)
SENTENCE_END = re.compile(r"[.!?…。！？:：][\"'”’»)\]*_`」』]*$")
_ASKS = ignore_case(
    r"[?？]\W*$|^\W*(?:how|why|what|where|when|who|which|can|could|do|does|did|is|are|am|will|would|should|may)\s+"
    r"(?:i|you|we|they|he|she|it|the|my|your|a|an|there|this|that|do|does|did|can|is|are|to)\b(?!.*[.,:;])"
    r"|^\W*how (?:long|much|many|often|soon|far|quickly) "
    r"(?:do|does|did|is|are|will|would|can|could|should|until|till|to)\b"
    # Without a question mark: "What is the limit for transfers." and "Which fees are there."
    r"|^\W*(?:what|which|where|when|why|how|who) (?:\w+ )?(?:is|are|do|does|did|can|could|will|would|should) "
    r"(?:i|you|we|they|it|the|my|your|this|that|there)\b(?!.*[,:;])(?!.*\b(?:is|are|was|were|must|should)\b)"
    # "How much paid leave have I taken", "does kyoto sell tea".
    r"|^\W*(?:what|which|how (?:much|many|long|often|far)) (?:[\w'’-]+ ){1,4}"
    r"(?:do|does|did|can|could|will|would|should|have|has|am|are|is) (?:i|you|we|my|your)\b(?!.*[,:;])"
    r"|^\W*(?:does|did|are) (?!not\b)\w+ (?!as\b|by\b|to be\b)\w+ (?!.*[.,:;])"
    # "Could you close it, please."
    r"|^\W*(?:can|could|will|would) you\b"
    r"|^\W*(?:(?:i|we) )?(?:need|want|would like|like) to know\b",
)
# "Release 2.3 was withdrawn": a noun with a number, though it may be a verb.
_NUMBERED_EVENT = re.compile(
    r"^\W*\w+ (?:v|no\.? ?|#)?\d[\w.]*(?: (?:of|for|in|on) [^.,:;]{1,60}?)? (?:is|was|were|has|had)\b", re.IGNORECASE
)
_REQUEST = re.compile(r"\b(?:please|pls)\b|\b(?:my|me|mine)\b", re.IGNORECASE)
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|being|has|have|had|do|does|did|can|could|will|would|shall|should|may|might|must|"
    r"need|"
    r"needs|use|uses|keep|keeps|make|makes|cause|causes|lead|leads|hinge|hinges|require|requires|fail|fails|return|"
    r"returns|ist|sind|wird|werden|hat|haben|kann|muss|soll|es|son|está|están|tiene|debe|puede|est|sont|doit|peut|"
    r"n['’]t|\w+n['’]t|[a-z]+(?:ates?|izes?|ises?|ifies|emerges|depends|allows|ensures|provides|prevents|enables))\b",
    re.IGNORECASE,
)
# What is one's opinion, or open: behind what is told in brackets or in a short sentence, or as its label.
_OPINION = (
    r"opinion|idea|proposals?|suggestion|undecided|no decision(?: yet)?|not (?:yet )?decided(?: yet)?|open question|"
    r"(?:still )?(?:up for|under) discussion|to be (?:decided|discussed)|meinung|vorschlag|idee|"
    r"(?:noch )?nicht entschieden|(?:noch )?keine entscheidung|unentschieden|opinión|propuesta|"
    r"sin decidir|(?:aún )?no (?:está )?decidido|sin decisión|proposition|avis|"
    r"pas (?:encore )?décidé|aucune décision|non décidé"
)
_THAT_IS = (
    r"(?:this|that|it|is|was|only|just|still|an?|the|my|our|his|her|their|\w+['’]s|das|dies|ist|war|nur|eine?|"
    r"es|fue|solo|una?|mi|su|c'est|une|mon|son)"
)
_UNDECIDED = ignore_case(
    rf"[(（][^()（）]*\b(?:{_OPINION})\b[^()（）]*[)）]|^\W*(?:\w+(?:['’]s)? )?(?:{_OPINION})\s*[:：]"
    rf"|^\W*(?:{_THAT_IS} ){{0,4}}(?:{_OPINION})(?: (?:of|by|von|de) \S+)?\W*$"
    r"|[(（][^()（）]*(?:提议|建议|未决定|提案|意見|未決定)[^()（）]*[)）]"
)
# Commas and brackets of an enumeration without a verb, and of one whatever its words: it states nothing.
_MANY_PARTS, _ENUMERATION = 3, 9
_REASON = ignore_case(
    r"\b(?:because|since|otherwise|so that|leads? to|led to|causes?|caused|results? in|resulted in|prevents?|due to|"
    r"as a result|hinges? on|depends? on|makes? it|weil|denn|sonst|andernfalls|dadurch|führt zu|verhindert|porque|"
    r"ya que|"
    r"de lo contrario|causa|provoca|evita que|parce que|sinon|cause|provoque|entraîne|empêche)\b"
    r"|因为|由于|否则|导致|なぜなら|ため|原因",
)
# Words of advice; not "is always slow", "what should be removed", "should have been".
_MODAL = ignore_case(
    r"(?:^|[,;:] |\b(?:should|must|please|and) )always\b|\bmust(?! have\b)\b|"
    r"(?<!that )(?<!which )(?<!who )\bshould\b(?! have\b)|"
    r"\b(?:ought to|ha(?:s|ve) to|needs? to|prefer(?:ably)?|recommend(?:s|ed)?|makes? sure|ensure that|better to|"
    r"remember to|rule of thumb|the rule is|best practices?)\b",
)
# Advice and warnings in other languages.
_FOREIGN_ADVICE = ignore_case(
    r"^\W*(?:immer|stets|verwende|nutze|prüfe|setze|halte|teste|starte|lies|schreibe|achte|stelle|lege|führe|mache|"
    r"nimm|"
    r"warte|begrenze|sichere|siempre|usa|utiliza|comprueba|verifica|revisa|ejecuta|guarda|mantén|evalúa|haz|pon|espera|"
    r"añade|toujours|utilise[rz]?|vérifie[rz]?|lance[rz]?|garde[rz]?|teste[rz]?|ajoute[rz]?|faites|fais|mets|mettez|"
    r"attends|attendez)\b|\b(?:muss|müssen|sollte|sollten|soll|sollen|debe|deben|debería|hay que|conviene|doit|doivent|"
    r"il faut|devrait)\b|必须|务必|应该|始终|べき|必ず|してください",
)
_WARNING = ignore_case(
    r"^\W*(?:\w+,? ){0,2}?(?:never|don['’]t|do not|avoid|beware|stop \w+ing|be careful|careful|caution|warning|"
    r"watch out|"
    r"nie|niemals|vermeide|achtung|vorsicht|nunca|jamás|evita|cuidado|jamais|évite[rz]?)\b|^attention ?:"
    r"|\b(?:must not|mustn['’]t|should not|shouldn['’]t|should never|must never|is never|are never|darf nicht|"
    r"dürfen nicht|"
    r"auf keinen fall|nicht verwenden|no (?:uses|hagas|debe|deben|se debe|utilices|ejecutes)|il ne faut pas|"
    r"ne doit pas|"
    r"ne (?:utilise[rz]?|lance[rz]?|fai(?:s|tes)) (?:pas|jamais))\b"
    r"|不要|切勿|禁止|避免|決して|避け|しないで|してはいけ",
)
# The clause that an instruction may follow.
_CONDITION = re.compile(
    r"^\W*(?:if|when|whenever|before|after|while|for|to|in|on|at|with|where|unless|once|during|by|as)\s[^,]+,\s",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"^(?:an?|the)\s(?:[\w‑-]+\s){0,5}?(?:approach|framework|pattern|method|technique|guideline|model|practice|"
    r"strategy|"
    r"process|principle|methodology|architecture|mechanism)s?\s(?:for|that|to|of|which|where|in)\b",
    re.IGNORECASE,
)
# Markup, tables, addresses, a list in a line, and the fields of a bug report.
_MARKUP = ignore_case(
    r"\{\{|\}\}|\{code|\{noformat|<[a-z/!]|\|\w|https?://|[.:;]\s*\d{1,2}\.(?:\s+[a-z]|$)|\*\*|\buser agent\b|"
    r"\b(?:steps to reproduce|(?:actual|expected) (?:results?|behaviou?r))\b|mozilla/",
)


@dataclass(frozen=True)
class Lesson:
    """A sentence as a lesson tells it.

    ``text``: without a label, and an intention ("I will check") as an instruction ("Check"). ``is_reason``: it tells
    why, or what came of it. ``is_verdict``: it was a verdict on an attempt.
    """

    text: str
    role: Role
    is_reason: bool
    is_verdict: bool = False


def read_lesson(sentence: str, *, is_opening: bool = False) -> Lesson:
    """Return what a sentence is.

    Args:
        sentence: One sentence with single blanks.
        is_opening: It is the first of several sentences of its text, so it may be a title.
    """
    return _read_lesson(sentence, is_opening)


# Patterns, summaries and profiles read the same sentences.
@lru_cache(maxsize=1 << 14)
def _read_lesson(sentence: str, is_opening: bool) -> Lesson:
    bare = _LABEL.sub("", sentence) or sentence
    is_labelled = bare != sentence
    told = _CONNECTOR.sub("", bare) or bare
    text = told[:1].upper() + told[1:] if told != sentence else sentence
    is_reason = _REASON.search(text) is not None
    if _MARKUP.search(text) or text.startswith("(") or is_placeholder(text):
        return Lesson(sentence, "fragment", False)
    if instruction := _to_instruction(bare) or _to_instruction(text):
        role: Role = "warning" if _warns(instruction) else "rule"
        return Lesson(instruction, "fragment" if _is_weak(instruction) else role, is_reason)
    if is_question(text):
        return Lesson(text, "question", False)
    if not is_labelled and (_is_subject(text, is_opening=is_opening) or (_DONE.match(text) and not is_reason)):
        return Lesson(sentence, "subject", False)
    if _is_weak(text):
        return Lesson(sentence, "fragment", False)
    if caution := text if text.startswith(TRIED) else _to_caution(text):
        return Lesson(caution, "warning", True, is_verdict=True)
    if _FIRST_PERSON.search(text) or _VERDICT.match(text) or _OF_CURRENT.match(text):
        is_rule = _REQUIREMENT.match(text) is not None
        if is_rule and (trimmed := _trim_attempt(text)) != text:
            return Lesson(trimmed, "rule", False)
        tells_why = is_reason or is_failure(text) or _MISTAKE.search(text) is not None
        return Lesson(text, "rule" if is_rule and not is_reason else "report", tells_why)
    if _warns(text):
        return Lesson(text, "warning", is_reason)
    if (is_command(text) and not _NUMBERED_EVENT.match(text)) or _MODAL.search(text) or _FOREIGN_ADVICE.search(text):
        return Lesson(_trim_attempt(text), "rule", is_reason)
    if _PAST.search(text):
        return Lesson(text, "report", is_reason or is_failure(text))
    if _DEFINITION.match(text):
        return Lesson(text, "definition", False)
    parts = text.count(",") + text.count("(")
    if parts >= _ENUMERATION or (parts >= _MANY_PARTS and _VERB.search(text) is None):
        return Lesson(text, "subject", False)
    return Lesson(text, "fact", is_reason or is_failure(text))


def is_change(text: str) -> bool:
    """Return True for the name of a change that fixes nothing: "feat(api): add paging", "Wire the page to the api"."""
    return (_COMMIT.match(text) or _CHANGE_VERB.match(text)) is not None and not _FIX.search(text)


def find_past(text: str) -> int | None:
    """Return where a sentence first tells of what was or was done; None if it does not."""
    found = _PAST.search(text)
    return found.start() if found else None


def is_undecided(text: str) -> bool:
    """Return True if a sentence says that what is told is an opinion or a proposal, or not decided."""
    return _UNDECIDED.search(text) is not None


def is_personal(text: str) -> bool:
    """Return True for a sentence in the first person."""
    return _FIRST_PERSON.search(text) is not None


def is_question(text: str) -> bool:
    """Return True for a question, also without a question mark."""
    return _ASKS.search(text) is not None


def is_request(text: str) -> bool:
    """Return True for what somebody asks to be done for them: "Please close my account"."""
    return _REQUEST.search(text) is not None


def opens_with_condition(text: str) -> bool:
    """Return True for "When it fails, .." and "For a release, .."."""
    return _CONDITION.match(text) is not None


def names_task(text: str) -> bool:
    """Return True for the name of a task or change: "Improve the export", "Fix the page"."""
    return _CHANGE_VERB.match(text) is not None


def judges_attempt(text: str) -> bool:
    """Return True for a text that says of an attempt that it failed: "The implementation is wrong"."""
    return _ATTEMPT.search(text) is not None


def is_bug_report(text: str) -> bool:
    """Return True for a text that tells how to reproduce a bug: its instructions are no advice."""
    return _REPRODUCTION.search(text) is not None


def _is_weak(text: str) -> bool:
    return is_vague(text) or refers_elsewhere(text)


def _warns(text: str) -> bool:
    """Return True for a warning: "Never ..", "When it runs, do not ..", "It must not .."; not "If it does not .."."""
    return _WARNING.search(_CONDITION.sub("", text, count=1)) is not None


def _to_instruction(text: str) -> str | None:
    """Return an intention or proposal as an instruction: "Next time, I will check the log" gives "Check the log"."""
    if proposal := _PROPOSAL.match(text):
        return proposal["rest"][:1].upper() + proposal["rest"][1:]
    match = _INTENTION.match(text)
    if match is None:
        return None
    rest, condition = match["rest"], match["condition"] or ""
    for pattern, replacement in _PERSONS:
        rest, condition = pattern.sub(replacement, rest), pattern.sub(replacement, condition)
    rest = f"do not {rest}" if match["not"] else rest
    told = condition + rest
    return told[:1].upper() + told[1:]


def _to_caution(text: str) -> str | None:
    """Return a verdict as what was tried: "The code is wrong because it sorts twice" gives "code that sorts twice"."""
    match = _FAULT.match(text)
    if match is None or names_wish_alone(text):
        return None
    what = match["what"]
    article = "" if _NO_ARTICLE.match(what) else "an " if what[0].lower() in "aeiou" else "a "
    return _trim_attempt(f"{TRIED}{article}{what} that {match['rest']}")


def _trim_attempt(text: str) -> str:
    """Return a lesson without what an attempt does instead, and without its effect: ", but it currently rounds"."""
    found = _OF_ATTEMPT.search(text)
    if found is None or not (text.startswith(TRIED) or _SHOULD.search(text[: found.start()])):
        return text
    is_effect = not found[0].lstrip(", ").lower().startswith(("but", "however", "while", "whereas"))
    return text if text.startswith(TRIED) and not is_effect else f"{text[: found.start()]}."


def _is_subject(text: str, *, is_opening: bool) -> bool:
    """Return True for a title, heading or commit subject."""
    if _COMMIT.match(text) or text.lstrip().startswith("#") or (is_opening and _CHANGE_VERB.match(text)):
        return True
    if not SENTENCE_END.search(text):
        return is_opening or text.endswith("…") or _CHANGE_VERB.match(text) is not None or not _VERB.search(text)
    if text.endswith("..."):
        return True
    # "Retry and Backoff Pattern." opens a note as its title.
    words = [word for word in re.findall(r"[^\W\d_][\w'’-]*", text) if len(word) > 3]
    capitals = sum(word[0].isupper() for word in words)
    return is_opening and len(words) <= 14 and not _VERB.search(text) and 2 * capitals >= len(words)
