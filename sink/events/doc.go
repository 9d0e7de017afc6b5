// Package events builds expiry events and rejections as NATS messages, and publishes them to
// the stream of events.
//
// The log determines the Nats-Msg-Id of every message. So the stream drops a message that is
// published again within its duplicate window. Nothing relies on that: a message that may have
// been published before is looked up. [Publisher.Unpublished] reads the last message on each
// subject. The stream stores the messages of a subject in the order of the log, so it has stored
// every message that is not newer than the last one.
//
// That is true only if the stream never stores a message without the one before it on its
// subject. The events and the rejections of one document have two subjects, and subscribers
// expect both in the order of the log. So the stream must never store a message without the
// one before it of the same document. [Publisher.Publish] has four ways to ensure that:
//
//   - If the stream has replicas, all messages go as atomic batches, one after the other. The
//     servers agree on a batch once, and store all of it or none (atomic.go; nats-server 2.12
//     or newer; an older one gets one message after the other).
//   - On one replica the server stages an atomic batch in files, which takes long. If each
//     message is of another document, they go out together there, and the stream acknowledges
//     each (acks.go).
//   - If a document repeats, all go as a fast batch. The server stores them in order, up to the
//     first that it refuses (fast.go; nats-server 2.14 or newer).
//   - With an older server, each message waits for the one before it of its document; if a
//     document repeats often, all go as atomic batches there too.
//
// If a message is larger than the server or the stream allows when it is published, an event
// goes without its document, and a rejection with the beginning of its body (fit.go). If the
// stream refuses a message for another reason, the error names the stream and says what to do
// (refused.go).
//
// # Fences
//
// The stream may store a publication much later, after a process or the network stood still.
// So a process that takes over a partition publishes a [Fence] before it looks anything up.
// From then on, the stream refuses what carries an older fence. On one replica each message
// carries the fence. On replicas the leader refuses two messages in process that expect the same
// fence, so the first message of a batch carries it for all (F1 to F3):
//
//   - F1: The leader compares the fence with the last one that is stored, and proposes the
//     batch, in one step. While a later fence is in process, it refuses the batch.
//   - F2: A new leader has stored all that former leaders got accepted before it accepts
//     anything. It knows no batch that was sent to a former leader in part, and refuses the rest.
//   - F3: So a fence that is acknowledged is behind everything that older fences let through, and
//     a look-up that sees the fence sees all of that (lookup.go). It must see the fence: a replica
//     may lag, and a leader that was deposed may not know it yet.
package events
