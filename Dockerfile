# `docker build --tag robustsweep:latest .` is the image that --kuberay asks for; `--target ci` adds the test tools.
FROM python:3.11-slim AS core
# KubeRay's probes call wget; the commit goes into records by git.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git wget \
    && rm -rf /var/lib/apt/lists/*
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 RAY_USAGE_STATS_ENABLED=0
WORKDIR /robustsweep
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY search_spaces search_spaces
COPY trainers trainers
COPY sweep sweep
COPY reports reports
COPY robustsweep robustsweep
RUN pip install --constraint constraints.txt '.[cluster]'

FROM core AS ci
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium make \
    && rm -rf /var/lib/apt/lists/*
COPY . .
RUN pip install --constraint constraints.txt --editable '.[dev,cluster,dashboard]'
CMD ["sh", "-c", "ruff format --check . && ruff check . && mypy && python -m pytest -n 2 --dist loadfile --no-loadscope-reorder"]

# The last stage is what a build without --target gives.
FROM core
