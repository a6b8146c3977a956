"""Principles (level 3): what several patterns have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from consolidation_pipeline.core import clustering
from consolidation_pipeline.core.clustering import ALGORITHM_VERSION, cluster_key
from consolidation_pipeline.core.extraction import extract_principles
from consolidation_pipeline.core.gates import judge_principle
from consolidation_pipeline.core.similarity import similarity_join
from consolidation_pipeline.llm.prompts.principle import PrincipleReply, principle_prompt
from consolidation_pipeline.service.abstracting import Formed, Group, Outcome, PlannedAbstraction, form_abstractions
from consolidation_pipeline.service.asking import Question, ask_outcomes
from consolidation_pipeline.service.extracting import extract_outcomes
from consolidation_pipeline.service.nodes import centered
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.abstractions import UnitRow, list_active, load_unit_vectors, load_units
from consolidation_pipeline.store.graph import load_dimension
from consolidation_pipeline.store.vectors_io import Vectors

# pipeline.md, principles.
FEWEST_PATTERNS = 3


def form_principles(run: ProjectRun) -> Formed:
    """A principle of every group of patterns that none covers yet; without a model a person looks at it first.

    Nothing is made while ``summarize`` is off, and by a run that carries out a plan, which names no principles.

    Raises:
        ConflictError: a principle changed meanwhile; what was written before stays.
    """
    if not run.options.summarize or run.plan is not None:
        return Formed()
    groups = group_patterns(run)

    def author(plans: Sequence[PlannedAbstraction]) -> Iterator[Sequence[Outcome]]:
        boilerplate = run.calibration.boilerplate if run.calibration else ()
        if run.options.llm_model is None:
            return extract_outcomes(groups, plans, extract_principles, boilerplate=boilerplate, needs_review=True)
        question = Question(principle_prompt, PrincipleReply, judge_principle)
        return ask_outcomes(run, groups, plans, question, boilerplate=boilerplate)

    return form_abstractions(run, "principle", groups, author)


def group_patterns(run: ProjectRun) -> list[Group]:
    """The active patterns by average linkage at ``t_principle``, as memories are grouped: centred, within one type."""
    with run.engine.connect() as connection:
        ids = list_active(connection, run.project.id, "pattern")
        dimension = load_dimension(connection, run.project.id, run.embedder.name)
        vectors = load_unit_vectors(connection, ids, run.embedder.name, dimension) if ids else {}
        units = load_units(connection, vectors)
    patterns = [units[id_] for id_ in ids if id_ in vectors]
    if len(patterns) < FEWEST_PATTERNS:
        return []
    x = np.stack([vectors[pattern.id] for pattern in patterns])
    return _group(run, patterns, x if run.calibration is None else centered(x, run.calibration))


def _group(run: ProjectRun, patterns: Sequence[UnitRow], x: Vectors) -> list[Group]:
    threshold = run.thresholds["t_principle"]
    pairs = similarity_join(x, threshold)
    if not run.options.cross_type:
        types = np.array([pattern.memory_type for pattern in patterns])
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = clustering.group(x, pairs, method="average", threshold=threshold, min_size=FEWEST_PATTERNS)
    found = clustering.summarize_groups(x, labels, minimum=False)
    groups = []
    for number, rows in enumerate(clustering.members_of(labels)):
        # Of equally central ones the smallest id: patterns stand in the order of their ids.
        central = rows[np.argsort(-found.mean_similarity[rows], kind="stable")]
        key = cluster_key([patterns[row].id for row in rows], ALGORITHM_VERSION)
        groups.append(Group(key, tuple(patterns[row] for row in central), float(found.mean[number])))
    return groups
