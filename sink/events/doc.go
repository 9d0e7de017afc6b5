// Package events says what lapse has to say: it builds expiry events and
// rejections as NATS messages and stores them in the stream of events.
//
// Every message carries a Nats-Msg-Id that the log determines, so that saying it
// again within the stream's duplicate window changes nothing. For what may have
// been said longer ago, [Publisher.Unsaid] looks at the last message on each
// subject: the messages of one subject are stored in the order of the log, so
// whatever is not newer than the last one has been said.
package events
