"""The one error that the command line turns into one sentence and exit code 2."""


class ClusterError(Exception):
    """What is wrong, what names it, and the value or command to use instead, in one sentence."""
