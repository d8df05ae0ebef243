# The targets: `plugin` and `guard`, each a module alone, as Istio and Envoy Gateway fetch it from a
# registry; `sbom`; and the services of docker-compose.yml: `envoy` with the module in it,
# `envoy-in-cluster`, and `gateway`, which is tests/js/gateway and has tests/js/shop beside it.

# Every base image has its digest, which the engine verifies. Envoy's comes from whoever builds:
#   docker build --target envoy --build-arg ENVOY=envoyproxy/envoy:v1.40.0@sha256:… .
# `docker buildx imagetools inspect envoyproxy/envoy:v1.40.0` prints the digest. For trying things
# out, docker-compose.yml takes the tag.
ARG ENVOY=envoyproxy/envoy:v1.40.0

FROM rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS module
WORKDIR /src
# scripts/zig needs it to fetch the C compiler for wasm.
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*
# The page of live impersonations is built with it. scripts/shrink-wasm needs it, too: it makes the
# module smaller by a third, and Envoy is ready that much sooner.
COPY --from=node:24.11.1-bookworm-slim@sha256:48abc13a19400ca3985071e287bd405a1d99306770eb81d61202fb6b65cf0b57 /usr/local/bin/node /usr/local/bin/
COPY --from=node:24.11.1-bookworm-slim@sha256:48abc13a19400ca3985071e287bd405a1d99306770eb81d61202fb6b65cf0b57 /usr/local/lib/node_modules /usr/local/lib/node_modules
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
# rust-toolchain.toml is left out: the image has the pinned compiler, and its lints are not needed.
COPY Cargo.toml Cargo.lock Makefile build.rs ./
COPY .cargo .cargo
COPY scripts scripts
COPY benches benches
COPY console console
COPY crates crates
COPY src src
ENV ONLY_PINNED=1
RUN make build sbom

FROM scratch AS plugin
COPY --from=module /src/target/wasm32-wasip1/release/impersonation_filter.wasm /plugin.wasm

FROM scratch AS guard
COPY --from=module /src/target/wasm32-wasip1/release/impersonation_guard.wasm /plugin.wasm

# Prints the SBOM of the module: docker build --target sbom --output type=local,dest=. .
FROM scratch AS sbom
COPY --from=module /src/target/wasm32-wasip1/release/impersonation_filter.cdx.json /src/target/wasm32-wasip1/release/impersonation_guard.cdx.json /

FROM ${ENVOY} AS envoy
ARG ENVOY
ARG TRIAL=no
RUN case $ENVOY in *@sha256:*) ;; *) [ "$TRIAL" = yes ] || { echo "name Envoy's image with its digest: --build-arg ENVOY=$ENVOY@sha256:…" >&2; exit 1; } ;; esac
WORKDIR /srv
COPY --from=module /src/target/wasm32-wasip1/release/impersonation_filter.wasm /src/target/wasm32-wasip1/release/impersonation_guard.wasm target/wasm32-wasip1/release/
COPY envoy.yaml .
# A published port arrives on the container's own interface, so the public listener and that of the
# browser sessions must not be on loopback. Nor must the one for Prometheus, which is another
# container. The admin interface stays on loopback.
RUN sed -i '/^ *socket_address: .*port_value: \(10000\|10080\|9902\)}/s/127\.0\.0\.1/0.0.0.0/' envoy.yaml && [ "$(grep -c 'address: 0\.0\.0\.0, port_value' envoy.yaml)" = 3 ]
# The key comes from the environment, or from a file that the environment names.
CMD ["sh", "-c", "export IMPERSONATION_SIGNING_KEY=\"${IMPERSONATION_SIGNING_KEY:-$(cat \"$IMPERSONATION_SIGNING_KEY_FILE\")}\" && exec envoy -c envoy.yaml"]

# One of several Envoys. Their tokens are in etcd, and all have the address 127.0.0.1:10010.
FROM module AS cluster-configuration
COPY envoy.yaml .
RUN scripts/envoy-in-cluster etcd-1:2379:2381 etcd-2:2379:2381 etcd-3:2379:2381 | \
  sed '/port_value: \(10000\|9902\)} # Yours/s/127\.0\.0\.1/0.0.0.0/; s/127\.0\.0\.1:10000/127.0.0.1:10010/g; s/port_value: 10000}/port_value: 10010}/; s/type: STATIC # Yours: STRICT_DNS.*/type: STRICT_DNS/; s/address: 127\.0\.0\.1, port_value: \(900[01]\)}/address: cluster-gateway, port_value: \1}/' > /envoy.yaml

FROM envoy AS envoy-in-cluster
COPY --from=cluster-configuration /envoy.yaml .

FROM node:24.11.1-bookworm-slim@sha256:48abc13a19400ca3985071e287bd405a1d99306770eb81d61202fb6b65cf0b57 AS gateway
WORKDIR /srv/tests/js
COPY tests/js/package.json tests/js/package-lock.json tests/js/.npmrc ./
RUN npm ci --omit=dev --omit=optional --no-audit --no-fund
COPY tests/js/gateway/provider.js tests/js/gateway/server.js gateway/
COPY tests/js/shop shop/
COPY tests/js/stack/signing-key.js stack/
USER node
CMD ["node", "gateway/server.js"]
