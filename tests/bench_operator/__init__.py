"""`make bench-operator`: a fleet of InferenceServices on a real API server, and what the operator does to it."""
