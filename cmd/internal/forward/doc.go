// Package forward posts messages of the stream of events to a receiver on the web ([Run]), and writes
// them into files ([Archive]). Both are handlers of [client.Client.Ordered], which brings the messages in
// order and shares them among processes.
//
//	run.go       options, and the life of a message: attempts, pauses, its end
//	post.go      one attempt: the request, its signature, what the answer means, and figures for Prometheus
//	event.go     a message as a CloudEvent, in JSON or in headers
//	dead.go      dead letters: stored, listed, counted, sent again, also by a running process that is asked for it
//	archive.go   files of events
//
// # Guarantees
//
//   - F1: The receiver gets each message at least once, unless it is a dead letter. A message is acknowledged
//     only after the receiver has taken it, or the stream of dead letters has it.
//   - F2: The first deliveries of a document's messages come in order. While there is a dead letter about a document,
//     later messages about it become dead letters behind that, in their order. Other documents do not wait.
//   - F3: A message has the same webhook-id and body each time, in all processes.
//   - F4: Each message in the range of an archive's file is in it once, however often it comes.
package forward
