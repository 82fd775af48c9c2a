"""Worlds that agents are tried in: generated tasks with an exact judge. Plain Python, without a model."""
