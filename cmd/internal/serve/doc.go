// Package serve is the process behind "lapse serve": it wires servers, processor,
// reads and HTTP together and runs them until it is told to stop.
//
// [Run] goes through its files in this order:
//
//	listen.go       the ports: a taken one is found before anything is done
//	lock.go         the data directory, which one process at a time may have
//	natsserver.go   the embedded NATS server, without Options.NATS
//	redisserver.go  the embedded Redis, without Options.Redis
//	connect.go      connections to both
//	http.go         /healthz, /readyz, /metrics
//	serve.go        the processor and the reads; then the way back
//
// Reads have connections of their own to both servers: a burst of them does not
// hold up the log, nor does a log that is being replayed hold up the reads. They
// are served from the start, and answer 503 until there is something to read.
//
// The way back: the reads answer what has come, the processor ends the work in
// flight, the connections close, the embedded servers stop (NATS writes what it
// has to disk), and the data directory is released.
package serve
