"""Causes for which a replay decided otherwise than the job: evidence, and the sentences that tell it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.embed import is_local, load_embedder
from consolidation_pipeline.service.shadow.offline_models import StoredReplies
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.knowledge.abstractions import load_unit_vectors
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.shadow.rewind import load_hashed_texts

# Cosine below which a stored vector is not that of its text. Rounding on another machine changes it by about 1e-7.
_SAME_VECTOR = 0.9999
_SHOWN = 5


@dataclass
class Evidence:
    """Knowledge of a replay about the job and itself.

    Attributes:
        job: Row of the job.
        replies: Replies of the replay, with those that were missing.
        inputs_then, inputs_now: Hashes of the inputs by part; None for a job that recorded none.
        code_then, code_now: ``version`` and ``digest`` of the program.
        used: Number of memories that were used since the job began.
        arrived: Number of memories that came while it ran.
        options_now: Options of the replay.
    """

    job: Row[Any]
    replies: StoredReplies
    inputs_then: Mapping[str, str] | None
    inputs_now: Mapping[str, str]
    code_then: Mapping[str, str] | None
    code_now: Mapping[str, str]
    used: int
    arrived: int
    options_now: Mapping[str, Any] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Sentences on what is not as it was for the job."""
        return [*self._describe_inputs(), *self._describe_options(), *self._describe_code(), *self._describe_replies()]

    def _describe_inputs(self) -> Iterator[str]:
        if self.inputs_then is None:
            yield "the job recorded no hash of its inputs, as an older version ran it"
        else:
            parts = sorted(self.inputs_then.keys() | self.inputs_now.keys())
            parts = [part for part in parts if self.inputs_then.get(part) != self.inputs_now.get(part)]
            if parts:
                yield f"inputs differ: {', '.join(parts)}"
            if "uses" in parts and self.used:
                yield f"inputs differ: {self.used} memories were used since, and earlier counts are not kept"
        if self.arrived:
            yield f"inputs differ: {self.arrived} memories came while the job ran"

    def _describe_options(self) -> Iterator[str]:
        then, now = self.job.options, self.options_now
        for name in sorted(then.keys() | now.keys()) if now else ():
            if name not in now:
                yield f"option differs: {name} = {then[name]!r} is no option of this version"
            elif name not in then:
                yield f"option differs: {name} is new in this version; its default {now[name]!r} was used"
            elif then[name] != now[name]:
                yield f"option differs: {name} was {then[name]!r} and is {now[name]!r}"

    def _describe_code(self) -> Iterator[str]:
        if self.code_then is None:
            yield "the job recorded no version of the program, as an older version ran it"
        elif self.code_then != self.code_now:
            versions = " and ".join(f"{code['version']} ({code['digest'][:12]})" for code in self._both_codes())
            yield f"code differs: the job ran and the replay runs {versions}"

    def _both_codes(self) -> Iterator[Mapping[str, str]]:
        yield self.code_then or {}
        yield self.code_now

    def _describe_replies(self) -> Iterator[str]:
        missing = sorted((purpose, model, hash_) for hash_, (purpose, model) in self.replies.missing.items())
        for purpose, model, hash_ in missing[:_SHOWN]:
            yield f"reply not stored: prompt {hash_[:12]} of {purpose} to {model}"
        if len(missing) > _SHOWN:
            yield f"reply not stored: {len(missing) - _SHOWN} further prompts"


def find_causes(
    copy: Engine, project: Project, evidence: Evidence, rows: Sequence[str], *, stopped: str | None
) -> list[str]:
    """Return why a decision differs, the surest cause first.

    Args:
        copy: The copy after the replay.
        project: The project.
        evidence: What the replay knows.
        rows: Ids of the rows of the decision, in front of all others.
        stopped: Why the replay stopped early; None if it did not.
    """
    causes = [f"the replay stopped: {stopped}"] if stopped is not None else []
    with copy.connect() as connection:
        causes += _check_texts(connection, project, evidence, set(rows))
    causes += evidence.notes
    return causes or [
        "unknown: inputs, options, code and replies are those of the job, so this is an error of the program"
    ]


def _check_texts(connection: Connection, project: Project, evidence: Evidence, rows: set[str]) -> Iterator[str]:
    """Yield the memories whose text or vector is not the one that was stored together with the other."""
    texts = load_hashed_texts(connection, project.id)
    edited = [id_ for id_, (text, hash_) in texts.items() if content_hash(text) != hash_]
    for id_ in sorted(edited, key=lambda one: (str(one) not in rows, one))[:_SHOWN]:
        yield f"input differs: the text of memory {id_} was changed outside of the ledger"
    model = evidence.job.options.get("embedding_model", "local")
    if not is_local(model) or not texts:
        return
    embedder, ids = load_embedder(model), list(texts)
    again = embedder.embed([text for text, _ in texts.values()])
    stored = load_unit_vectors(connection, ids, embedder.name, again.shape[1])
    cosines = {id_: float(stored[id_] @ vector) for id_, vector in zip(ids, again, strict=True) if id_ in stored}
    off = [id_ for id_, cosine in cosines.items() if cosine < _SAME_VECTOR and id_ not in edited]
    for id_ in sorted(off, key=lambda one: (str(one) not in rows, one))[:_SHOWN]:
        yield f"embedding differs: the vector of memory {id_} is not the one that {model} gives its text"
