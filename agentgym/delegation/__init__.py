"""Sub-agents: an agent gives tasks to workers, who act in a view of its environment and report back.

`Crew` holds the workers of one environment. `agentgym.wrappers.Delegation` puts it on any environment, for a learner
that trains one agent; `agentgym/Team-v0` makes each worker an agent of its own, in PettingZoo's form.
"""

from agentgym.delegation.crew import Crew, Job, Outcome
from agentgym.delegation.places import LEAD, VIEWS, Places
from agentgym.delegation.roles import ROLES, Role, read_roles

__all__ = ["LEAD", "ROLES", "VIEWS", "Crew", "Job", "Outcome", "Places", "Role", "read_roles"]
