// Package simulation runs lapse in a world of its own, in which a seed decides everything: when
// each message arrives, which are lost, what fails. See README.md.
//
// A history is a [plan.Plan] that happens in a [World], in a bubble of testing/synctest. The
// processes are processor.Processor with the client library of NATS (process.go). They talk to
// models of NATS (package natsmodel, through a pipe.Pipe) and of Redis (package redismodel, through
// remote.go), and keep snapshots in memory (objects.go). The world carries each request to a model,
// and each answer back, one at a time (world.go). It sends what clients send (client.go), lets
// processes serve reads (slides.go), and breaks what the plan says (steps.go). A region is a site (site.go). The second
// follows the first over a link (link.go), is promoted (promote.go), and is judged in second.go. lists.go lists what
// Redis
// held at some moments, once the history is over, and queries.go queries it. An observer.Observer checks what must hold
// after each effect, clocks.go what lapse has to say of a wrong clock, and verdict.go what must hold at the end. run.go
// runs a plan until the world has come to rest.
//
// What makes a history of a seed the same each time: the world lets one thing happen, waits
// until every goroutine waits, and puts what they have sent meanwhile into one order. Requests
// that cannot be told apart share their fate. Goroutines that run at the same instant take
// turns, because tests set GOMAXPROCS to 1.
package simulation
