// Package live sends the stream of events to HTTP clients, as server-sent events.
//
// A [Hub] reads the end of the stream once, however many clients follow it (tail.go), and keeps
// the last messages, ready to be sent, in a ring (ring.go). Each client is a position in the
// ring (stream.go). A client that begins further back reads the stream by itself up to the ring
// (catchup.go). The hub reads only while there are clients.
//
// Changes of a collection begin with its documents, which are read for each client. Then it follows the ring too, from
// the place in the stream that the documents have (stream.go).
//
//   - L1: A client gets every message of its topic from its position on, in the order of
//     the stream and once, until its connection ends. Its next connection goes on from the last
//     id that it got.
//   - L2: A client holds up neither the others nor the hub. One that falls behind the ring, or
//     takes nothing for a while, is dropped.
package live
