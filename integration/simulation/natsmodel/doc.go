// Package natsmodel models nats-server 2.15.2 with JetStream, as far as lapse uses it, for the
// simulation. A [Server] is plain data: [Server.Do] carries out one command of a client, and
// returns what the server sends. It has no goroutines, no clock of its own and no randomness,
// and it never waits. So the same commands at the same times have the same answers.
//
// The flow, file by file: [Client.Parse] and [Sent.Bytes] (wire.go) are the protocol. Do and
// the subscriptions are in server.go. A message that a stream takes goes through publish.go
// (conditions, duplicates, limits), or through batch.go (atomic and fast batches), into
// store.go. Requests of JetStream are in api.go, the single messages that they read in get.go,
// and pull consumers in consumer.go. [Stream] (stream.go) is what a simulation looks at and
// breaks.
//
// Where lapse cannot tell the difference, the model is simpler than the server:
//
//   - What a command causes happens at once: a message is stored, acknowledged and delivered
//     in one call of Do. Who delays the results decides what overtakes what.
//   - The headers of a message are sorted, because the client writes them in random order.
//   - A queue group delivers to its first member.
//   - The duplicate window ends to the nanosecond; the server forgets an id up to 50 ms later.
//   - With three replicas, a message is in flight until the next call of [Server.Timers]. A
//     message that expects the last sequence of a subject is refused while one of that subject
//     is in flight.
//   - A stream that loses its end loses its consumers too, as after a restart: nobody answers
//     their pull requests any more.
//
// The model panics at a request, or a setting of a consumer, that it does not know. It ignores
// settings of streams that lapse refuses or does not use. TTLs of messages, counters,
// schedules, mirrors and sources are among them.
//
// The tests make the same random operations on the model and on a real server, and compare
// the answers. They do so on one replica only: a cluster of three starts too slowly for that.
package natsmodel
