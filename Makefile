# make help says what there is.
SHELL := bash

.PHONY: help build test check sim compat chaos bench record docs fuzz

help: ## this text
	@sed -n 's/^\([a-z]*\):.*## /  \1	/p' $(MAKEFILE_LIST)

build: ## bin/highwater, static
	CGO_ENABLED=0 go build -trimpath -o bin/highwater ./cmd/highwater

test: ## everything that must hold before a change lands; installs what it needs
	.ci/run

check: ## the quick part of test: no other process, no Java
	.ci/run format vet staticcheck arch unit

sim: ## the simulator
	.ci/run sim

compat: ## real clients, the real Kafka's tools, raw requests
	.ci/run peer golden compat

chaos: ## the long run: 200 kills under load
	CHAOS_ROUNDS=200 .ci/run chaos

bench: build ## Highwater, the null broker and, if there is a java, Kafka, side by side; some minutes
	HIGHWATER_BINARY=$(CURDIR)/bin/highwater go run ./test/perf

record: ## asks the real Kafka anew what test/compat compares with
	go test -count=1 -timeout 30m ./test/compat -broker=kafka -record

docs: ## docs/config.md, from the tables in internal/config
	go test -count=1 -run '^TestDocs$$' ./internal/config -rewrite

fuzz: ## every fuzz target, a million executions each (FUZZ=1m: for a minute each)
	test/fuzz
