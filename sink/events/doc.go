// Package events builds expiry events, due messages, changes, warnings and rejections as NATS messages, publishes
// them to the stream of events, and reads what that has stored.
//
// Nothing removes duplicates: messages have no Nats-Msg-Id. The log determines a [Key] for each
// message. Before an owner publishes what may be published already, it reads the stream from a
// known [Place] up to its fence, and keeps the keys (a [Tail]). A process that publishes may end at
// any time. So [Publisher.Publish] must store no message without those before it, and has two ways:
//
//   - On one replica, messages go as fast batches. The server stores them in their order, up to the
//     first that it refuses, and none after that one (fast.go).
//   - On several replicas, messages go as atomic batches, one after the other. The servers agree on
//     a batch once, and store all of it or none (atomic.go). On one replica the server would stage
//     them in files, which takes long.
//
// A message alone is no batch. nats-server must be 2.14 or newer.
//
// If a message is larger than the server or the stream allows when it is published, an event,
// a change or a warning goes without its document, a due message without its body, and a rejection with the
// beginning of its body (fit.go). If the
// stream refuses a message for another reason, the error names the stream and says what to do
// (acks.go).
//
// A server that loses power may lose messages that it had acknowledged. [Publisher.Holds] tells
// whether the stream still has a message, and [Tail.Named] which messages of the log its outputs
// name (get.go, tail.go).
//
// # Fences
//
// The stream may store a publication much later, after a process or the network stood still.
// So a process that takes over a shard publishes a [Fence] before it reads the stream.
// From then on, the stream refuses what carries an older fence. On one replica each message
// carries the fence. On replicas the leader refuses two messages in process that expect the same
// fence, so the first message of a batch carries it for all (F1 to F3):
//
//   - F1: The leader compares the fence with the last one that is stored, and proposes the
//     batch, in one step. While a later fence is in process, it refuses the batch.
//   - F2: A new leader has stored all that former leaders got accepted before it accepts
//     anything. It knows no batch that was sent to a former leader in part, and refuses the rest.
//   - F3: So a fence that is acknowledged is behind everything that older fences let through, and
//     a reader that has the stream up to the fence has all of that. A replica may lag, and a leader
//     that was deposed may not know it yet: the reader asks again until it has the fence (get.go).
package events
