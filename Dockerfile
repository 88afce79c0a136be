# The project's images, from a clone, with nothing prepared:
#   docker build --target operator   -t localhost/radix-islands/operator:dev .
#   docker build --target engine-cpu -t localhost/radix-islands/engine-cpu:dev .
#   docker build --target engine     -t localhost/radix-islands/engine:dev .      # for GPUs; 11 GB
# A release says what it is made from: --build-arg REVISION=$(git rev-parse HEAD) --build-arg SOURCE=https://...
# e2e/cluster builds them with buildah on a Debian base and from wheels that it made or fetched beforehand, through the
# arguments BASE and PIP_*. BASE is any image with a Python 3.11 named python3 and its venv module.
#
# The same contents give the same image, wherever and whenever: byte code is checked by nobody's clock (unchecked-hash), and
# timestamps are set when building: buildah bud --timestamp 0, or docker buildx with SOURCE_DATE_EPOCH=0 and rewrite-timestamp.
ARG BASE=docker.io/library/python:3.11-slim-bookworm
# Triton compiles with a C compiler where it runs: the slim image has none.
ARG ENGINE_BASE=docker.io/library/python:3.11-bookworm
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG SOURCE=unknown

FROM ${BASE} AS dependencies
ARG PIP_NO_INDEX=
ARG PIP_FIND_LINKS=
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_NO_CACHE_DIR=1
ARG SOURCE_DATE_EPOCH=315532800
ARG PYTHONHASHSEED=0
ARG PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY locks/build.txt locks/operator.txt locks/
# Byte code of the Kubernetes client's models is left out: 1,400 files, of which the operator loads hardly any.
RUN python3 -m venv /build \
 && /build/bin/pip install -q --require-hashes -r locks/build.txt \
 && python3 -m venv --without-pip /opt/venv \
 && /build/bin/pip --python /opt/venv/bin/python install -q --no-compile --require-hashes -r locks/operator.txt \
 && python3 -m compileall -q --invalidation-mode unchecked-hash -x /client/models/ /opt/venv/lib

FROM dependencies AS build
COPY pyproject.toml README.md LICENSE ./
COPY operator operator
COPY engine engine
RUN /build/bin/pip wheel -q --no-deps --no-build-isolation -w /dist . \
 && /build/bin/pip --python /opt/venv/bin/python install -q --no-compile --no-deps --prefix /opt/operator /dist/*.whl \
 && /build/bin/pip install -q --no-compile --no-deps --target /opt/radix-islands /dist/*.whl \
 && printf '#!/bin/sh\nexec python3 -m island_engine "$@"\n' > /opt/radix-islands/bin/island-engine \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/operator /opt/radix-islands

# The operator: no torch, no SGLang. Dependencies are a layer of their own, which changes only with their lock.
FROM ${BASE} AS operator
ARG VERSION
ARG REVISION
ARG SOURCE
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=build /opt/operator /opt/operator
ENV PATH=/opt/operator/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/operator/lib/python3.11/site-packages PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["island-operator"]
LABEL org.opencontainers.image.title="radix-islands operator" \
      org.opencontainers.image.description="Rolls out SGLang prefix islands and their pool ratio as one switch" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

# The engine on a CPU, without torch and SGLang: a pod mounts a virtual environment that has them at /opt/venv.
FROM ${BASE} AS engine-cpu
ARG VERSION
ARG REVISION
ARG SOURCE
COPY --from=build /opt/radix-islands /opt/radix-islands
ENV PATH=/opt/radix-islands/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/radix-islands:/opt/venv/lib/python3.11/site-packages \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["island-engine"]
LABEL org.opencontainers.image.title="radix-islands engine (CPU)" \
      org.opencontainers.image.description="SGLang plugin with prefix islands; SGLang comes in at /opt/venv" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"

# The engine on GPUs: SGLang's own wheels, each by its hash, in one layer; the plugin in another. ENGINE_LOCKS are installed one
# after the other without asking for dependencies: "locks/engine-cpu.txt locks/sglang.txt" makes an engine for CPUs, whole.
# What compiles kernels where it runs (Triton, FlashInfer) writes below HOME, which is /tmp.
FROM ${ENGINE_BASE} AS engine
ARG VERSION
ARG REVISION
ARG SOURCE
ARG ENGINE_LOCKS="locks/engine-gpu.txt"
ARG PIP_NO_INDEX=
ARG PIP_FIND_LINKS=
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
ARG PIP_NO_CACHE_DIR=1
ARG SOURCE_DATE_EPOCH=315532800
ARG PYTHONHASHSEED=0
# SGLang compiles where it runs, for the GPU that it finds there: its kernels (with c++, ninja and the nvcc of the wheels), Triton's
# launchers (with Python.h), the corpus of NGRAM (c++ and ninja).
RUN wanted="g++ libnuma1 ninja-build" \
 && { test -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || wanted="$wanted python3-dev"; } \
 && apt-get update -qq && apt-get install -y -qq --no-install-recommends $wanted \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
RUN --mount=type=bind,source=locks,target=/src/locks --mount=type=bind,from=dependencies,source=/build,target=/build \
    cd /src && PYTHONDONTWRITEBYTECODE=1 python3 -m venv --without-pip /opt/venv \
 && for lock in ${ENGINE_LOCKS}; do \
      /build/bin/pip --python /opt/venv/bin/python install -q --no-compile --no-deps --require-hashes -r ${lock} || exit 1; \
    done \
 && { python3 -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib || true; }  # templates are no Python
# Who compiles kernels looks for a CUDA toolkit as NVIDIA installs it; the wheels have the same files under other names. The driver's
# library comes in with the GPU. Without CUDA's wheels (ENGINE_LOCKS for CPUs) there is nothing to link.
RUN cuda=/opt/venv/lib/python3.11/site-packages/nvidia/cu13 \
 && if test -d "$cuda"; then \
      ln -s lib "$cuda/lib64" && ln -s libcudart.so.13 "$cuda/lib/libcudart.so" && mkdir -p "$cuda/lib/stubs" \
      && ln -s /usr/lib/x86_64-linux-gnu/libcuda.so.1 "$cuda/lib/stubs/libcuda.so" && ln -s "$cuda" /usr/local/cuda; \
    fi
COPY --from=build /opt/radix-islands /opt/radix-islands
ENV PATH=/opt/radix-islands/bin:/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONPATH=/opt/radix-islands PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    CUDA_HOME=/usr/local/cuda NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
ENTRYPOINT ["island-engine"]
LABEL org.opencontainers.image.title="radix-islands engine" \
      org.opencontainers.image.description="SGLang with prefix islands" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}"
