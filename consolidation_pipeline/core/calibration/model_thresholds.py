"""Cosine thresholds of each embedding model: which cosine means "the same" and "on the same topic"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consolidation_pipeline.errors import InvalidOptionError

TIERS = ("t_merge", "t_suggest", "t_pattern", "t_principle")


@dataclass(frozen=True)
class ThresholdProfile:
    """Cosine thresholds of one embedding model, for vectors centred on the project's mean.

    - ``t_suggest``: calibration never goes below it. From here on a pair merges if all its differences are harmless;
      else a person is asked.
    - ``t_pattern``, ``t_principle``: hold where a project is too small to be calibrated.
    - ``measured``: measured on labelled data by this project; else an estimate.
    - ``plain``: profile for vectors that are not centred, as in small projects; None = the same.
    - ``shared_words``: share of the shorter text's content words that the other text must have before a person is
      asked, see ``WordSets.overlap``. Models that add up word vectors see only the topic.
    - ``unrelated``: cosine of a question and a text that has nothing to do with it, for plain vectors. Search places
      cosines between it and ``t_suggest``.
    """

    t_suggest: float
    t_pattern: float
    t_principle: float
    measured: bool = False
    source: str = ""
    plain: ThresholdProfile | None = None
    shared_words: float = 0.0
    unrelated: float = 0.1

    def thresholds(self) -> dict[str, float]:
        """Return the four thresholds by name. ``t_merge`` is ``t_suggest``: the texts decide, not the cosine."""
        return {"t_merge": self.t_suggest, **{name: getattr(self, name) for name in TIERS[1:]}}


# Of 147 rewordings whose every difference is harmless, 95 % have a plain cosine of at least 0.87, and all but 2 one of
# 0.76 and more. Plain vectors need higher thresholds than centred ones, see docs/quality.md.
# t_principle lies 0.18 below t_pattern: with 0.15, the patterns on webhooks in the sample have no principle. When the
# texts of all patterns ended alike, and so were more similar, 0.15 was measured on commands of 11 domains: 78 % of the
# pairs of patterns that shared a principle were of one domain.
WORDLLAMA = ThresholdProfile(
    t_suggest=0.52,
    t_pattern=0.45,
    t_principle=0.27,
    measured=True,
    source="labelled stores of questions, commands, notes and reflections; centred vectors, complete linkage",
    plain=ThresholdProfile(
        t_suggest=0.76,
        t_pattern=0.60,
        t_principle=0.38,
        measured=True,
        source="the same stores, vectors as they are",
        shared_words=0.5,
    ),
    shared_words=0.5,
)

# The design's values for OpenAI's large model. They are the most conservative ones known, so models without a profile
# use them too.
CONSERVATIVE = ThresholdProfile(
    t_suggest=0.90,
    t_pattern=0.85,
    t_principle=0.80,
    source="the design's values for OpenAI's large model, never measured here",
)


def _estimate(
    t_suggest: float, t_pattern: float, t_principle: float, source: str, *, unrelated: float = 0.1
) -> ThresholdProfile:
    return ThresholdProfile(t_suggest, t_pattern, t_principle, source=source, unrelated=unrelated)


_HIGH_BASE = "unrelated texts already score 0.7 to 0.85, so all tiers are squeezed into the top"

# Estimates err on the side of comparing too little. People who know their data set the thresholds themselves.
PROFILES: Mapping[str, ThresholdProfile] = {
    "wordllama/l2_supercat_256": WORDLLAMA,
    "openai/text-embedding-3-large": CONSERVATIVE,
    "openai/text-embedding-3-small": _estimate(
        0.88, 0.80, 0.75, "estimate: unrelated texts score 0.1 to 0.4, close to the large model's, a little lower"
    ),
    "openai/text-embedding-ada-002": _estimate(0.95, 0.90, 0.88, f"estimate: {_HIGH_BASE}", unrelated=0.7),
    "cohere/embed-english-v3.0": _estimate(
        0.87,
        0.75,
        0.70,
        "estimate: unrelated texts score 0.2 to 0.5; routers that use it start from 0.3",
        unrelated=0.2,
    ),
    "cohere/embed-multilingual-v3.0": _estimate(
        0.90,
        0.80,
        0.75,
        "estimate: a higher base than its English sibling's, as multilingual models have",
        unrelated=0.3,
    ),
    "voyage/voyage-3": _estimate(0.88, 0.78, 0.73, "estimate: a spread like that of Cohere's v3", unrelated=0.2),
    "gemini/text-embedding-004": _estimate(0.90, 0.82, 0.77, "estimate: a base of 0.4 to 0.6", unrelated=0.4),
    "mistral/mistral-embed": _estimate(0.93, 0.88, 0.85, f"estimate: {_HIGH_BASE}", unrelated=0.7),
    "sentence-transformers/all-MiniLM-L6-v2": _estimate(
        0.78,
        0.62,
        0.57,
        "measured with average linkage on plain vectors, where merged pairs were right in 97 % of cases; not with the "
        "linkage and the centring used here",
    ),
}
_ALIASES = {
    "text-embedding-3-large": "openai/text-embedding-3-large",
    "text-embedding-3-small": "openai/text-embedding-3-small",
    "text-embedding-ada-002": "openai/text-embedding-ada-002",
    "embed-english-v3.0": "cohere/embed-english-v3.0",
    "embed-multilingual-v3.0": "cohere/embed-multilingual-v3.0",
    "huggingface/sentence-transformers/all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
}


def find_profile(model: str, *, centered: bool = True) -> ThresholdProfile:
    """Return the profile of an embedding model; the conservative one if the model is unknown.

    Args:
        model: name under which the model's vectors are stored.
        centered: for vectors with the project's mean subtracted; else for vectors as they are.
    """
    profile = PROFILES.get(_ALIASES.get(model, model), CONSERVATIVE)
    return profile if centered or profile.plain is None else profile.plain


def resolve_thresholds(
    model: str,
    given: Mapping[str, float | str],
    *,
    centered: bool = True,
    recommended: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the thresholds in force by name.

    A tier that was not given follows the one that was: the one below it down, the one above it up. So t_merge >=
    t_suggest >= t_pattern always holds. ``t_graph``, from which on pairs are stored, is among them only if it is above
    t_pattern: if it was recommended and no t_pattern was given.

    Args:
        model: name of the embedding model.
        given: configured thresholds by name; ``auto`` or missing = not given.
        centered: as in ``find_profile``.
        recommended: thresholds of the calibration, used where none is given; else the profile's are used.

    Raises:
        InvalidOptionError: a given threshold is above the one given for the tier over it.
    """
    profile = find_profile(model, centered=centered).thresholds()
    defaults = profile | {name: value for name, value in (recommended or {}).items() if name in profile}
    chosen = {name: value for name, value in given.items() if name in profile and not isinstance(value, str)}
    resolved = {name: float(chosen.get(name, default)) for name, default in defaults.items()}
    for upper, lower in (("t_suggest", "t_pattern"), ("t_merge", "t_suggest"), ("t_merge", "t_pattern")):
        if lower in chosen and upper not in chosen:
            resolved[upper] = max(resolved[upper], resolved[lower])
        elif lower in chosen and resolved[lower] > resolved[upper]:
            raise InvalidOptionError(
                f"{lower} = {resolved[lower]} is above {upper} = {resolved[upper]}: set one that is not above the other"
            )
    for upper, lower in (("t_merge", "t_suggest"), ("t_suggest", "t_pattern")):
        resolved[lower] = min(resolved[lower], resolved[upper])
    t_graph = min((recommended or {}).get("t_graph", -1.0), resolved["t_suggest"])
    return resolved | ({"t_graph": t_graph} if t_graph > resolved["t_pattern"] and "t_pattern" not in chosen else {})
