# Everything that is built or checked here. The recipes are in .ci, so that they
# run without make too.

.PHONY: run test faults soak lint bench

# Serve on the embedded default: NATS and Redis inside, data in ./lapse-data.
run:
	go run ./cmd/lapse serve

# All tests, with the race detector, on real servers; installs what is missing if it can.
test:
	.ci/test

# The long forms of the random tests: faults, histories, floods; see .ci/faults.
faults:
	.ci/faults

# One lapse under load and faults for 10 minutes, or for LAPSE_SOAK.
soak:
	.ci/soak

# Formatting, vet and staticcheck.
lint:
	.ci/lint

# lapse and what is used instead, side by side on this machine (about 20 minutes);
# for other rows and sizes: go run ./integration/bench -help.
bench:
	go run ./integration/bench
