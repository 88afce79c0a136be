"""kubectl-island: what a person sees of an InferenceService, and says to it."""

from island_operator.cli.kubectl.app import main

__all__ = ["main"]
