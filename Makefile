# moim: `make demo` shows what it does, `make test` proves that it does it. Both install what is
# missing (as root) or print the one apt-get line, and build what they need.

BIN := target/release/moim

.PHONY: help demo test build web serve shots media evidence-joins format lint deps

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

serve: build ## a development server on http://127.0.0.1:7880
	@$(BIN) serve

shots: build ## the pictures of README and docs, made again
	@scripts/shots.sh

media: ## the speech and the pictures that bots send, made again
	@scripts/media.sh

evidence-joins: build ## 50 joins a second delay no packet of sound by 5 ms
	@scripts/evidence-joins.sh

format:
	@cargo fmt --all && cd web && npm run --silent format

lint:
	@cargo fmt --all --check && cargo clippy --release --locked --all-targets --workspace -- -D warnings
	@cd web && npm run --silent check

deps:
	@scripts/deps.sh
