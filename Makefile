# Everything that is built or checked here. The recipes are in .ci, so that they
# run without make too.

.PHONY: run test lint

# Serve on the embedded default: NATS and Redis inside, data in ./lapse-data.
run:
	go run ./cmd/lapse serve

# All tests, with the race detector, on real servers; installs what is missing if it can.
test:
	.ci/test

# Formatting, vet and staticcheck.
lint:
	.ci/lint
