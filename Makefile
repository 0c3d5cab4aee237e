# Run `make` for the list of targets.

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: servers
servers: ## fetch the PostgreSQL 14-18 and Kafka that tests run on into .servers/ (LAPSE_PG=15,18 narrows)
	@go run ./internal/servers/fetch
