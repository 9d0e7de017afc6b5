// Package events says what lapse has to say: it builds expiry events and
// rejections as NATS messages and stores them in the stream of events.
//
// Every message carries a Nats-Msg-Id that the log determines, so that saying it
// again within the stream's duplicate window changes nothing. For what may have
// been said longer ago, [Publisher.Unsaid] looks at the last message on each
// subject: the messages of one subject are stored in the order of the log, so
// whatever is not newer than the last one has been said.
//
// What was published may be stored much later, if somebody stood still on the way. So
// whoever takes a partition over stores a [Fence] before it looks, and with that what
// was published behind the former one is refused. On a stream with replicas that
// cannot be had: there it has to be stored within the duplicate window.
package events
