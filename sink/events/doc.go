// Package events builds expiry events and rejections as NATS messages, and publishes them to
// the stream of events.
//
// The log determines the Nats-Msg-Id of every message. So the stream drops a message that is
// published again within its duplicate window. A message that may have been published earlier
// than that is looked up: [Publisher.Unpublished] reads the last message on each subject. The
// stream stores the messages of a subject in the order of the log, so it has stored every
// message that is not newer than the last one.
//
// That is true only if the stream never stores a message without the one before it on its
// subject. The events and the rejections of one document have two subjects, and subscribers
// expect both in the order of the log. So the stream must never store a message without the
// one before it of the same document. [Publisher.Publish] has four ways to ensure that:
//
//   - If each message is of another document, they go out together, and the stream
//     acknowledges each (acks.go).
//   - If a document repeats and the stream has one replica, all go as a fast batch. The server
//     stores them in order, up to the first that it refuses (fast.go; nats-server 2.14 or
//     newer).
//   - If a document repeats often, and the stream has more replicas or the server is older,
//     the messages go as an atomic batch. The server stores all or none (atomic.go;
//     nats-server 2.12 or newer). On one replica it stages the batch in files, which takes long.
//   - Otherwise each message waits for the one before it of its document.
//
// If a message is larger than the server or the stream allows when it is published, an event
// goes without its document, and a rejection with the beginning of its body (fit.go). If the
// stream refuses a message for another reason, the error names the stream and says what to do
// (refused.go).
//
// The stream may store a publication much later, after a process or the network stood still.
// So a process that takes over a partition publishes a [Fence] before it looks anything up.
// From then on, the stream refuses messages with an older fence. A stream with
// replicas has no fences: there, a late publication must arrive within the duplicate window.
package events
