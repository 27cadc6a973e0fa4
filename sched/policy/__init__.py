"""Policies: each decides, from a read-only view, what the next batch is."""

from batchproof.sched.policy.protocol import Candidate, Plan, Policy, View
from batchproof.sched.policy.registry import POLICIES, make_policy

__all__ = ["POLICIES", "Candidate", "Plan", "Policy", "View", "make_policy"]
