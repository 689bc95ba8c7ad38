"""Search: the best legal strategies of a job on a cluster, and why they are the best."""

from linkscale.search.constraints import Constraints
from linkscale.search.planner import search_plans
from linkscale.search.result import PlanResult

__all__ = ["Constraints", "PlanResult", "search_plans"]
