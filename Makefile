# Everything sets up what it needs. Requires cargo (rustup), node 20.19 or later with npm, and python3
# with venv where no Envoy is on the PATH (see scripts/envoy).
.DEFAULT_GOAL := build
.PHONY: wasm-target build run demo test test-observability lint bench

module := target/wasm32-wasip1/release/impersonation_filter.wasm

# rust-toolchain.toml names it, but where rustup does not install by itself somebody has to say so.
wasm-target:
	if command -v rustup >/dev/null; then rustup target add wasm32-wasip1; fi

# The module that Envoy loads.
build: wasm-target
	cargo build --release --package impersonation-filter --lib --target wasm32-wasip1
	scripts/shrink-wasm $(module)

# Envoy in front of an identity gateway on 127.0.0.1:10000, until Ctrl-C, after a look at the flow.
run: build tests/gateway/node_modules stack/node_modules
	node demo/demo.js --stay

# The same, but it ends, and fails unless every step of the flow did what it should.
demo: build tests/gateway/node_modules stack/node_modules
	node demo/demo.js

# All that must hold: what .ci/run runs.
test: lint build tests/gateway/node_modules tests/clients/node_modules stack/node_modules
	cargo test --all-features
	cargo test --package impersonation-filter-cli --package impersonation-core --no-default-features without_the_engine
	cd tests/gateway && node --test
	cd tests/clients && node --test
	cd demo && node --test
	cd tests/claims-scripts && node --test
	cd tests/compose && node --test
	cd tests/observability && node --test

# Metrics, rules and dashboard against a real run (see scripts/prometheus).
test-observability: build tests/gateway/node_modules
	cd tests/observability && node --test

lint: wasm-target
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --lib --package impersonation-filter --package impersonation-core --package quickjs-rewind --target wasm32-wasip1 -- -D warnings
	cargo clippy --lib --package impersonation-filter --package impersonation-core --target wasm32-wasip1 --no-default-features -- -D warnings

# Figures: a load over loopback, each beside Envoy's own in the same run.
bench: build tests/gateway/node_modules
	cargo bench --bench gateway

%/node_modules: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@
