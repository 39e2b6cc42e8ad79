"""From a Recipe to a verified Plan: ops, placement, budgets, memory."""
