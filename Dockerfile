# The project's two images, from a clone, with nothing prepared:
#   docker build --target operator   -t localhost/radix-islands/operator:dev .
#   docker build --target engine-cpu -t localhost/radix-islands/engine-cpu:dev .
# e2e/cluster builds them with buildah on a Debian base and from wheels that it made or fetched beforehand, through the
# three arguments below. BASE is any image with a Python 3.11 named python3 and its venv module.
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
ARG PIP_NO_INDEX=
ARG PIP_FIND_LINKS=
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY locks/build.txt locks/operator.txt locks/
RUN python3 -m venv /build \
 && /build/bin/pip install -q --require-hashes -r locks/build.txt \
 && python3 -m venv --without-pip /opt/venv \
 && /build/bin/pip --python /opt/venv/bin/python install -q --require-hashes -r locks/operator.txt

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY engine engine
RUN /build/bin/pip wheel -q --no-deps --no-build-isolation -w /dist . \
 && /build/bin/pip --python /opt/venv/bin/python install -q --no-deps --prefix /opt/operator /dist/*.whl \
 && /build/bin/pip install -q --no-deps --target /opt/radix-islands /dist/*.whl \
 && printf '#!/bin/sh\nexec python3 -m island_engine "$@"\n' > /opt/radix-islands/bin/island-engine

# The operator: no torch, no SGLang. Dependencies are a layer of their own, which changes only with their lock.
FROM ${BASE} AS operator
LABEL org.opencontainers.image.title="radix-islands operator" \
      org.opencontainers.image.description="Rolls out SGLang prefix islands and their pool ratio as one switch" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=build /opt/operator /opt/operator
ENV PATH=/opt/operator/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/operator/lib/python3.11/site-packages PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["island-operator"]

# The engine on a CPU, without torch and SGLang: a pod mounts a virtual environment that has them at /opt/venv.
FROM ${BASE} AS engine-cpu
LABEL org.opencontainers.image.title="radix-islands engine (CPU)" \
      org.opencontainers.image.description="SGLang plugin with prefix islands; SGLang comes in at /opt/venv" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/radix-islands /opt/radix-islands
ENV PATH=/opt/radix-islands/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/radix-islands:/opt/venv/lib/python3.11/site-packages \
    PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["island-engine"]
