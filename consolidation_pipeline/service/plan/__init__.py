"""What a run would do, group by group, before it does it: a plan can be read, kept in a file and applied.

A plan is made in read-only transactions on the functions that a run is made of, so the database itself sees to it that
nothing is written. Applied, it is made once more from what is there then, and refused where the two differ.
"""

from consolidation_pipeline.service.plan.applying import check_plan, request_plan
from consolidation_pipeline.service.plan.document import Plan, load_plan, save_plan
from consolidation_pipeline.service.plan.making import make_plan

__all__ = ["Plan", "check_plan", "load_plan", "make_plan", "request_plan", "save_plan"]
