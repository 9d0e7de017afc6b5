// Package serve is the process behind "lapse serve". [Run] opens what it needs, runs
// processor, reads and HTTP, and closes everything at the end.
//
// [Run] goes through these files in this order:
//
//	listen.go       checks the ports, before it changes anything
//	natsserver.go   starts the embedded NATS server, without Options.NATS
//	redisserver.go  starts the embedded Redis, without Options.Redis
//	connect.go      connects to both servers; to Redis by package redisconn
//	node.go         runs the processor of each shard while this process owns the shard
//	leave.go        leaves a NATS server through which JetStream does not answer
//	reads.go        answers reads
//	identity.go     leaves reads to the others if the owner uses another Redis
//	http.go         serves HTTP: health, metrics and the API (package web)
//	gate.go         lets clients in: the embedded NATS server listens, and requests are answered;
//	                announces that the process is ready
//
// Without Options.NATS, data.go lets one process at a time use the data directory, and finds out
// when somebody removes it, and when its disk is nearly full.
//
// While it runs, permissions.go shows on the health board what NATS denies, census.go counts the
// documents of all collections for the metrics.
//
// [BeginAnew] (beginanew.go) is behind "lapse begin-anew", and [Offline] (offline.go) opens the data directory
// for commands: both while no process serves.
//
// The reads have connections of their own to both servers, so that a burst of reads does
// not delay the log, and a replay of the log does not delay the reads. They start at once.
// Requests wait while the process starts, for 3 seconds at most; then they answer 503 until there is something to read.
//
// At the end the reads answer the requests that have arrived, the processor ends the step
// in flight, the connections close, the embedded servers stop (NATS writes to disk), and
// the process releases the data directory.
package serve
