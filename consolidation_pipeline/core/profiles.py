"""Which cosine means "the same" and "on the same topic" differs from model to model: a profile for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from consolidation_pipeline.errors import InvalidOptionError


@dataclass(frozen=True)
class Profile:
    """Cosine thresholds of one embedding model, on vectors with the project's mean taken off."""

    t_merge: float
    t_suggest: float
    t_pattern: float
    t_principle: float


# Measured with complete linkage on centred vectors: at 0.82 merged pairs share their label in 98.5 % (short customer
# questions), 99.3 % (short commands), 95.8 % (reflections on failed code) and 100 % (repeated notes) of cases, before
# any veto; a store without repeats is merged in 5 % of its rows, all exact repeats.
WORDLLAMA = Profile(t_merge=0.82, t_suggest=0.76, t_pattern=0.60, t_principle=0.55)

# The values the design started from, meant for OpenAI's large model. They are the most cautious ones known, so models
# without a measured profile start from them too.
CAUTIOUS = Profile(t_merge=0.95, t_suggest=0.90, t_pattern=0.85, t_principle=0.80)

PROFILES: Mapping[str, Profile] = {
    "wordllama/l2_supercat_256": WORDLLAMA,
    "openai/text-embedding-3-large": CAUTIOUS,
}


def resolve_thresholds(model: str, given: Mapping[str, float | str]) -> dict[str, float]:
    """The thresholds in force: those ``given``, and the model's profile where one is ``auto`` or missing.

    A tier that was not given follows the one above it down, so that t_merge >= t_suggest >= t_pattern always holds.

    Raises:
        InvalidOptionError: a given threshold is above the profile's value of the tier over it.
    """
    profile = asdict(PROFILES.get(model, CAUTIOUS))
    chosen = {name: value for name, value in given.items() if name in profile and not isinstance(value, str)}
    resolved = {name: float(chosen.get(name, default)) for name, default in profile.items()}
    for upper, lower in (("t_merge", "t_suggest"), ("t_suggest", "t_pattern")):
        if lower not in chosen:
            resolved[lower] = min(resolved[lower], resolved[upper])
        elif resolved[lower] > resolved[upper]:
            raise InvalidOptionError(
                f"{lower} = {resolved[lower]} is above {upper} = {resolved[upper]} of {model}: set {upper} as well"
            )
    return resolved
