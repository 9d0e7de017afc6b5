# The recipes are in .ci, so that you can run them without make.

.PHONY: run test check faults simulate mutate held soak lint bench

# Run lapse with NATS and Redis embedded; its data is in ./lapse-data.
run:
	go run ./cmd/lapse serve

# Run the tests, in about six minutes on two cores. They need Go and redis-server, which is installed if it is missing.
test:
	.ci/test

# Run the rest: the race detector, a browser, Node, deploy/, and the tests that take long; install
# what they need if it is missing.
check:
	.ci/check

# Run the long random tests: faults, histories and a flood. See .ci/faults.
faults:
	.ci/faults

# Run lapse in the simulated world for an hour, or for LAPSE_SIMULATE. See
# integration/simulation/README.md.
simulate:
	.ci/simulate -run TestSeeds -v -timeout 0 -from 0 -for $${LAPSE_SIMULATE:-1h}

# Change lapse in 24 places, one at a time, and list the changes that no test notices. For some rooms, or more
# changes: go run ./integration/mutate -room shard,fold -n 100
mutate:
	go run ./integration/mutate

# Let something happen between two calls of each operation of lapse that makes more than one. See integration/held.
held:
	.ci/held

# Run lapse under a steady load and faults for an hour, or for LAPSE_SOAK.
soak:
	.ci/soak

# Check formatting, vet and staticcheck.
lint:
	.ci/lint

# Compare lapse with alternatives on this machine, in about 20 minutes. For other rows
# and sizes: go run ./integration/bench -help
bench:
	go run ./integration/bench
