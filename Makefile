# moim: `make demo` shows what it does, `make test` proves that it does it. Both install what is
# missing (as root) or print the one apt-get line, and build what they need.

BIN := target/release/moim

.PHONY: help demo test build dist web serve shots media format lint deps evidence-joins evidence-sockets \
	evidence-mcu evidence-rooms evidence-truth evidence-bottleneck evidence-verdicts evidence-canaries evidence-timecode evidence-downlinks evidence-networks evidence-senders evidence-thousand evidence-crowd evidence-compare evidence-capacity evidence-situations evidence-reports evidence-beside evidence-ends evidence-shards evidence-tcp evidence-nat evidence-devices evidence-attacks evidence-fuzz bench-bots bench-join bench-sfu bench-mcu \
	studies study-sfu study-sockets study-mesh-vs-sfu study-audio-room

help: ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 18

demo: build ## a room of 8 bots and 2 browsers, measured; a report at the end
	@scripts/demo.sh

test: ## everything that must hold: unit, virtual time, real runs, browsers
	@scripts/test.sh

build: deps web ## the one binary: target/release/moim
	@cargo build --release --locked

web: deps ## the call page and the report, which the binary embeds
	@scripts/web.sh

dist: build ## dist/moim: the same binary without its line tables
	@scripts/dist.sh

serve: build ## a development server on http://127.0.0.1:7880
	@$(BIN) serve

shots: build ## the pictures of README and docs, made again
	@scripts/shots.sh

media: ## the speech and the pictures that bots send, made again
	@scripts/media.sh

evidence-joins: build ## 50 joins a second delay no packet of sound by 5 ms
	@scripts/evidence-joins.sh

evidence-sockets: build ## 42 500 pings a second answered; 5 000 connections that stay
	@scripts/evidence-sockets.sh

evidence-mcu: build ## 100 tones in one mixed room, over one shard and over two
	@scripts/evidence-mcu.sh

evidence-rooms: ## 1000 seeded rooms and an hour of coming and going, in virtual time (6 to 20 min)
	@MOIM_SEEDS=1000 MOIM_MINUTES=60 cargo test --release --locked --workspace --test integration -- virtual_time

evidence-networks: ## what is estimated of a downlink on the networks of RFC 8867, in virtual time (1 min)
	@scripts/evidence-networks.sh

evidence-senders: build ## what Chromium as a sender does on networks of RFC 8867, to compare with (25 min, goes on where it stopped)
	@scripts/evidence-senders.sh

evidence-downlinks: build ## calls on bad networks: slow, lossy and shared links (18 min, goes on where it stopped)
	@scripts/evidence-downlinks.sh

studies: build ## all four in full, and docs/studies.md from them (under 90 min)
	@for name in sfu sockets mesh-vs-sfu audio-room; do $(MAKE) --no-print-directory study-$$name || exit; done
	@scripts/studies-doc.sh runs "All four ran on commit $$(git rev-parse --short HEAD)$$(git diff --quiet HEAD || echo ' and what was not committed')."

study-sfu: ## study A in full, up to 30 minutes; likewise study-sockets, -mesh-vs-sfu, -audio-room
study-sfu study-sockets study-mesh-vs-sfu study-audio-room: build
	@scripts/in-namespace.sh $(BIN) study $(@:study-%=%) $(STUDY_ARGUMENTS)

study-sockets: STUDY_ARGUMENTS = --beside socketcluster=scripts/socketcluster.mjs
# Those that are on this machine.
study-sfu study-audio-room: STUDY_ARGUMENTS = $(if $(shell command -v janus),--beside janus)
study-sfu: STUDY_ARGUMENTS += $(if $(shell command -v livekit-server),--beside livekit)

evidence-truth: build ## delay, loss and jitter as read against what the lab's link did
	@scripts/evidence-truth.sh

evidence-bottleneck: build ## ten causes of a bad run: does the lab name each? (33 min, goes on where it stopped)
	@scripts/evidence-bottleneck.sh

evidence-verdicts: build ## a crowd too much for the lab, a slow link, a busy thread, a late mixer: who is named? (9 min, goes on where it stopped)
	@scripts/evidence-verdicts.sh

evidence-canaries: build ## browsers and bots behind one link: delay, loss, freezes; a broken counter is found (16 min)
	@scripts/evidence-canaries.sh

evidence-timecode: build ## delay from camera to screen, as read from pictures, against what the lab's link did (4 min)
	@scripts/evidence-timecode.sh

evidence-capacity: build ## do searches for a capacity agree, and name what ends it? (80 min, goes on where it stopped)
	@scripts/evidence-capacity.sh

evidence-situations: build ## is nobody accused wrongly and nothing bad praised? 48 situations, three runs each (60 min, goes on where it stopped)
	@scripts/evidence-situations.sh

evidence-beside: build ## one scenario on moim, Janus, LiveKit (livekit-server on the PATH) and, if it is there, MediaMTX: is every metric there? (14 min)
	@scripts/evidence-beside.sh

evidence-reports: build ## does a report open at once and can it be used, of 10, 300 and 5000 people, and of the studies? (10 min)
	@scripts/evidence-reports.sh

evidence-compare: build ## is a server that is a tenth dearer found, and nothing between two sides of one build? (90 min, goes on where it stopped)
	@scripts/evidence-compare.sh

evidence-crowd: build ## 1350 people in one mixed room who stay, who come and go, who become more; pages among 1000 (22 min)
	@scripts/evidence-crowd.sh

evidence-thousand: build ## 1002 bots in rooms of three for two minutes, with a healthy generator
	@scripts/evidence-thousand.sh

evidence-ends: build ## runs that are interrupted or killed: record, report, processes, terminal
	@scripts/evidence-ends.sh

evidence-shards: build ## two shards: an even load, and what the second adds to a packet (20 min)
	@scripts/evidence-shards.sh

evidence-tcp: build ## study A's largest session by TCP: one speed, near that of UDP (10 min)
	@scripts/evidence-tcp.sh

evidence-nat: build ## a NAT gives everybody another port each 20 s: browsers, Pion and aiortc (4 min)
	@scripts/evidence-nat.sh

evidence-devices: build ## 30 random sequences of clicks, slow devices and lost sockets in Chromium (5 min)
	@scripts/evidence-devices.sh

evidence-attacks: build ## attacks one by one and all at once, over one media thread, two, and TLS (21 min)
	@scripts/evidence-attacks.sh

evidence-fuzz: ## whatever reads bytes of strangers, fuzzed on a nightly toolchain (20 min, goes on where it stopped)
	@scripts/evidence-fuzz.sh

bench-bots: build ## what a packet costs a bot, beside a plain str0m client
	@scripts/bench-bots.sh

bench-join: build ## what a join, a slot change and a voice cost a room of 20 and one of 2000 (1 min)
	@cargo run --release --locked -p engine --example join
	@scripts/in-namespace.sh node scripts/bench-join.mjs

bench-sfu: build ## what forwarding costs the server, beside the floor of the machine
	@scripts/bench-sfu.sh

bench-mcu: build ## what a mixed room costs the server, beside the floor of the machine and Janus (28 min)
	@scripts/bench-mcu.sh

format:
	@cargo fmt --all && cd web && npm run --silent format

lint:
	@cargo fmt --all --check && cargo clippy --release --locked --all-targets --workspace -- -D warnings
	@cd web && npm run --silent check

deps:
	@scripts/deps.sh
