"""Multi-agent tasks: a game solved exactly, a research team, a review. Registered in PettingZoo's registry."""
