# `make run` and `make demo` set up everything they need. Requires cargo, node (20.19 or later) and,
# where no Envoy is on the PATH, python3 (see scripts/envoy).
.DEFAULT_GOAL := build
.PHONY: build run demo

# The module that Envoy loads: target/wasm32-wasip1/release/impersonation_filter.wasm
build:
	if command -v rustup >/dev/null; then rustup target add wasm32-wasip1; fi
	cargo build --release --lib --target wasm32-wasip1

# Envoy in front of an identity gateway on 127.0.0.1:10000, until Ctrl-C, after a look at the flow.
run: build tests/gateway/node_modules demo/node_modules
	node demo/demo.js --stay

# The same, but it ends, and fails unless every step of the flow did what it should.
demo: build tests/gateway/node_modules demo/node_modules
	node demo/demo.js

%/node_modules: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@
