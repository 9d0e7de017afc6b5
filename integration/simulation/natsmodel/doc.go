// Package natsmodel models nats-server 2.15.2 with JetStream, as far as lapse uses it. A
// [Server] is plain data: it has no goroutines, no clock of its own and no randomness, and never
// waits. Whoever calls [Server.Do] decides when a command arrives, and when its effects do.
//
// [Client.Parse] and [Sent.Bytes] (wire.go) are the protocol. Do (server.go) gives a message to
// its subscribers and to its stream (stream.go), through the checks in publish.go or batch.go.
// Requests are in api.go, pull consumers in consumer.go.
//
// Where lapse cannot tell the difference, the model is simpler than the server:
//
//   - A message is stored, acknowledged and delivered at once.
//   - Headers are sorted, because the client writes them in random order.
//   - Fast batches do not report progress, and end at the first gap.
//   - Times are exact. The server forgets an id up to 50 ms late, and an inactive consumer up to
//     a second late.
//   - On three replicas, messages are in flight until the next call of [Server.Timers], which is
//     due a millisecond later. Who expects the last sequence of a subject in flight is refused.
//
// The model panics at requests that it does not know, and ignores settings of streams that lapse
// does not use. The tests compare it with a real server, and what replicas change with a
// cluster.
package natsmodel
