# The image for publishing: its files are those of `make image`, made by the same program inside.
#   docker build --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) --tag NAME .
FROM debian:12-slim AS build
ARG SOURCE_DATE_EPOCH
RUN apt-get update && apt-get install --yes --no-install-recommends \
  ca-certificates make python3 python3-venv
WORKDIR /source
COPY . .
RUN make venv PYTHON=python3 && .venv/bin/python -m tools.image --rootfs /image

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 MALLOC_ARENA_MAX=1
ENTRYPOINT ["moor"]
