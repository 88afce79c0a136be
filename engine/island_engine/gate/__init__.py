"""The gate: boots the same engine arguments with islands off, on and off again, and demands equal answers.

Pure: probes (what is asked), compare (what is concluded), report (the schema), fingerprint. Edges: guard and arms
(processes), client (HTTP), artifacts (files), run (one gate from start to end), cli.
"""
