"""The Gateway API's own CRD of HTTPRoute (standard channel), from its Go module: fetched once per machine."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from cluster.binaries import find_go
from cluster.paths import cache

MODULE = "sigs.k8s.io/gateway-api@v1.4.0"
ROUTES = "gateway.networking.k8s.io_httproutes.yaml"


def crd():
    """The file of HTTPRoute's CustomResourceDefinition."""
    kept = cache() / "gateway-api" / MODULE.rsplit("@", 1)[1] / ROUTES
    if not kept.exists():
        scratch = kept.parent / f".{os.getpid()}"
        scratch.mkdir(parents=True)
        try:
            env = {**os.environ, "GOMODCACHE": str(scratch), "GOFLAGS": "-modcacherw", "GOTOOLCHAIN": "local"}
            command = [find_go(), "mod", "download", "-json", MODULE]
            done = subprocess.run(command, cwd=scratch, env=env, capture_output=True, text=True, check=True)
            source = Path(json.loads(done.stdout)["Dir"]) / "config/crd/standard" / ROUTES
            shutil.copy(source, scratch / ROUTES)
            (scratch / ROUTES).replace(kept)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return kept
