"""A real single-node Kubernetes on this machine, for demos and end-to-end tests. Standard library only.

`up(Wanted(...))` returns a kubeconfig, `down()` undoes it; both raise ClusterError with one sentence. `status()` looks.
`ensure_binaries()` is the directory of `kubeall` (etcd, kube-*, kubectl) and `helm`, built when missing.
"""

from .binaries import ensure as ensure_binaries
from .bring_up import KUBECONFIG, Wanted, up
from .cli import down
from .errors import ClusterError
from .state import Status, status

__all__ = ["KUBECONFIG", "ClusterError", "Status", "Wanted", "down", "ensure_binaries", "status", "up"]
