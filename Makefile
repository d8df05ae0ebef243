# Everything sets up what it needs. Requires cargo (rustup), node 20.19 or later with npm, and python3
# with venv where no Envoy is on the PATH (see scripts/envoy).
.DEFAULT_GOAL := build
.PHONY: wasm-target build companion run demo demo-cluster bench chaos fuzz race hostile soak sbom deny docs lint lint-format lint-native lint-wasm test parts test-binaries test-plugin tools \
  test-core test-envoy test-endurance test-chaos test-dependencies test-differential test-without-engine test-gateway test-clients test-demo \
  test-claims-scripts test-compose test-observability

module := target/wasm32-wasip1/release/impersonation_filter.wasm
guard := target/wasm32-wasip1/release/impersonation_guard.wasm
companion := target/companion/impersonation-filter

# What Envoy calls in the modules. In the guard: of a body and of a response it is shown nothing.
exports := memory _initialize proxy_abi_version_0_2_1 proxy_on_memory_allocate proxy_on_vm_start proxy_on_configure \
  proxy_on_tick proxy_on_context_create proxy_on_request_headers proxy_on_delete proxy_on_grpc_receive proxy_on_grpc_close
guard_exports := $(exports)
filter_exports := $(exports) proxy_on_request_body proxy_on_request_trailers proxy_on_response_headers proxy_on_response_body \
  proxy_on_response_trailers proxy_on_log proxy_on_http_call_response

# rust-toolchain.toml names it, but where rustup does not install by itself somebody has to say so.
wasm-target:
	if command -v rustup >/dev/null; then rustup target add wasm32-wasip1; fi

# The modules that Envoy loads. One after the other: together they would share features, and the guard needs no engine.
build: wasm-target
	cargo build --release --package impersonation-filter --lib --target wasm32-wasip1
	cargo build --release --package impersonation-guard --lib --target wasm32-wasip1
	scripts/shrink-wasm $(module) $(filter_exports)
	scripts/shrink-wasm $(guard) $(guard_exports)

# The companion, for the tests that start it, where no other build of it gets in between. Among the parts of `make test`
# it has been built already.
companion: $(if $(filter parts,$(MAKECMDGOALS)),test-binaries)
	$(if $(filter parts,$(MAKECMDGOALS)),,cargo build --package impersonation-filter-cli)
	install -D target/debug/impersonation-filter $(companion)

# What is in the modules, beside them, as CycloneDX.
sbom: build
	scripts/sbom impersonation-filter > $(module:.wasm=.cdx.json)
	scripts/sbom impersonation-guard > $(guard:.wasm=.cdx.json)

# Envoy in front of an identity gateway on 127.0.0.1:10000, until Ctrl-C, after a look at the flow.
# The companion is for whoever then follows the README.
run: build companion tests/gateway/node_modules stack/node_modules
	node demo/demo.js --stay

# The same, but it ends, and fails unless every step of the flow did what it should.
demo: build tests/gateway/node_modules stack/node_modules
	node demo/demo.js

# The same with two Envoys and three nodes of etcd, of which the leader is killed.
demo-cluster: build tools tests/gateway/node_modules stack/node_modules
	node demo/cluster.js

# All that must hold: what .ci/run runs. Parts that do not need each other run side by side, and what each
# prints comes in one piece when it ends; those that failed are named again at the end. The last
# line has the totals.
test:
	@mkdir -p target
	@scripts/leash bash -o pipefail -c '$(MAKE) --no-print-directory --jobs 5 --output-sync=target --keep-going parts 2>&1 | tee target/test.log' \
	  || { echo; echo "What failed:"; grep -F '***' target/test.log; failed=1; }; \
	  scripts/test-totals target/test.log $(filter-out test-binaries,$(filter test-%,$(parts))) || failed=1; exit $${failed:-0}

# The longest first. The lints' compiler runs behind everything that a test waits for.
parts := test-envoy test-endurance test-chaos test-differential test-binaries build test-clients test-observability test-core lint-native \
  lint-wasm test-dependencies test-without-engine test-demo test-compose test-gateway test-claims-scripts lint-format
parts: $(parts)

# What a part prints begins with its name, for the totals.
part = @echo "== $@"

test-binaries:
	cargo test --all-features --no-run --message-format=json-render-diagnostics > target/test-binaries.json

# What the verifiers say is asked of a plugin of their own, not shipped. After the module, which is made of the same.
test-plugin: build
	cargo build --release --package test-plugin --lib --target wasm32-wasip1
	scripts/shrink-wasm $(dir $(module))test_plugin.wasm

# More at once than there are cores, as they wait for Envoy most of the time.
test-envoy: test-binaries build test-plugin companion tools
	$(part)
	IMPERSONATION_FILTER=$(CURDIR)/$(companion) IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) TEST_PLUGIN_WASM=$(CURDIR)/$(dir $(module))test_plugin.wasm RUST_TEST_THREADS=6 scripts/run-tests target/test-binaries.json envoy

test-differential: test-binaries build tools tests/gateway/node_modules
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) scripts/run-tests target/test-binaries.json differential

# In networks of its own, for which it takes root: see crates/testkit/src/network.rs. One after the other, as both
# weigh the machine down.
test-chaos: test-binaries build tools
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) RUST_TEST_THREADS=1 scripts/run-tests target/test-binaries.json chaos

# The same for as long as docs/reliability.md says, and with the times held to their bounds: some minutes.
chaos: build tools
	CHAOS=long cargo test --test chaos -- --nocapture --test-threads 1

# In short what race and soak have at length.
test-endurance: test-binaries build tools
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) scripts/run-tests target/test-binaries.json endurance

# A million subject tokens, or RACE_TOKENS, each wanted by sixteen at once: see docs/reliability.md.
race: build tools
	RACE_TOKENS=$(or $(RACE_TOKENS),1000000) cargo test --profile bench --test endurance -- --nocapture race

# A million requests that nobody should send, or HOSTILE_REQUESTS, half of them over HTTP/2.
hostile: build tools
	HOSTILE_REQUESTS=$(or $(HOSTILE_REQUESTS),1000000) cargo test --profile bench --test envoy -- --nocapture hostile_requests_have

# Half an hour, or SOAK_SECONDS, of mixed traffic: what grows, or is never given back?
soak: build tools
	SOAK_SECONDS=$(or $(SOAK_SECONDS),1800) cargo test --profile bench --test endurance -- --nocapture soak

# Looks for bytes that harm a reader of what strangers send, for an hour or FUZZ_SECONDS: see scripts/fuzz. make test
# tries what it found.
fuzz:
	scripts/fuzz $(or $(FUZZ_SECONDS),3600)

# All that need no Envoy.
test-core: test-binaries
	$(part)
	scripts/run-tests target/test-binaries.json --but envoy endurance chaos dependencies differential

# Licences, versions and sources of what is depended on, and the list of what is in the modules.
test-dependencies: test-binaries build
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) scripts/run-tests target/test-binaries.json dependencies

# After what runs the companion, which it builds anew without the engine.
test-without-engine: test-core companion lint-native
	$(part)
	nice cargo test --package impersonation-filter-cli --package impersonation-core --no-default-features without_the_engine
	nice cargo test --all-features --doc

test-gateway: tests/gateway/node_modules
	$(part)
	cd tests/gateway && node --test

test-clients: build companion tools tests/gateway/node_modules tests/clients/node_modules
	$(part)
	cd tests/clients && node --test

# These two have the ports that envoy.yaml names.
test-demo: build companion tools tests/gateway/node_modules stack/node_modules
	$(part)
	cd demo && flock ../target/.ports.lock node --test

test-compose: build tools tests/clients/node_modules stack/node_modules
	$(part)
	cd tests/compose && flock ../../target/.ports.lock node --test

test-claims-scripts:
	$(part)
	cd tests/claims-scripts && node --test

# Metrics, rules and dashboard against a real run (see scripts/prometheus).
test-observability: build tools tests/gateway/node_modules
	$(part)
	cd tests/observability && node --test

# Fetched on first use, beside the compiler.
tools:
	scripts/envoy --path
	scripts/pyjwt --version
	scripts/authlib --version
	scripts/schemathesis --version
	scripts/etcd
	scripts/ip

lint: lint-format lint-native lint-wasm

lint-format:
	cargo fmt --all --check

# Where both are wanted the tests come first: their binaries are waited for.
lint-native: $(if $(filter parts,$(MAKECMDGOALS)),test-binaries)
	nice cargo clippy --workspace --all-targets --all-features -- -D warnings

# By the profile of the module, whose C is compiled then.
lint-wasm: wasm-target $(if $(filter parts,$(MAKECMDGOALS)),build)
	nice cargo clippy --release --lib --package impersonation-filter --package impersonation-guard --package impersonation-envoy --package impersonation-core --package quickjs-rewind --target wasm32-wasip1 -- -D warnings
	nice cargo clippy --release --lib --package impersonation-filter --package impersonation-guard --package impersonation-envoy --package impersonation-core --target wasm32-wasip1 --no-default-features -- -D warnings

# Writes the tables of docs/ and the JSON Schemas, which are made from the declarations in crates/core/src/config.
docs:
	UPDATE_DOCS=1 cargo test --package impersonation-core --lib config::describe

# Advisories too, for whoever has cargo-deny and the internet.
deny:
	cargo deny --locked --workspace check

# Figures: a load over loopback, each beside Envoy's own in the same run.
bench: build tests/gateway/node_modules
	cargo bench --bench gateway

%/node_modules: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@
