package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrLeftOut: a stream has a message, and a NATS server leaves it out of what it sends. That server cannot read its
// file: consumers, direct gets and requests for the next message pass over what has a wrong checksum, without an error.
var ErrLeftOut = errors.New("a NATS server leaves out a message that it cannot read in its file")

// LeftOut returns which sequences between two others (both excluded) a stream has, in order. It asks the leader of the
// stream, which knows from its index what was deleted.
func LeftOut(ctx context.Context, stream jetstream.Stream, after, before uint64) (left []uint64, err error) {
	if before <= after+1 {
		return nil, nil
	}
	info, err := stream.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, err
	}
	gone := slices.Sorted(slices.Values(info.State.Deleted))
	for seq := max(after+1, info.State.FirstSeq); seq < before && seq <= info.State.LastSeq; seq++ {
		if _, found := slices.BinarySearch(gone, seq); !found {
			left = append(left, seq)
		}
	}
	return left, nil
}

// Unreadable is the error of a message that the leader of a stream cannot read. info is of that stream.
func Unreadable(info *jetstream.StreamInfo, seq uint64) error {
	leader := "the NATS server"
	if info.Cluster != nil && info.Cluster.Leader != "" {
		leader = info.Cluster.Leader
	}
	return fmt.Errorf("%w: message %d of stream %s, and %s leads it: let another server lead the stream, and build the "+
		"replica of this one anew; if there is no other one, restore the stream from a backup", ErrLeftOut, seq,
		info.Config.Name, leader)
}

// passed calls do with the messages between two sequences that the stream has, although the server that has answered
// has passed over them. Its leader may be able to read them.
func (p *Publisher) passed(ctx context.Context, after, before uint64, do func(*nats.Msg, uint64)) error {
	if before <= after+1 {
		return nil
	}
	// Behind a restore NATS lists a million of them, for which a busy server needs longer than the client library allows.
	ctx, cancel := context.WithTimeout(ctx, standsAfter)
	defer cancel()
	stream, err := p.js.Stream(ctx, p.stream)
	if err != nil {
		return fmt.Errorf("ask for the state of stream %s: %w", p.stream, err)
	}
	left, err := LeftOut(ctx, stream, after, before)
	if err != nil {
		return fmt.Errorf("ask for what was deleted from stream %s: %w", p.stream, err)
	}
	for _, seq := range left {
		m, err := GetMessage(ctx, p.js.Conn(), p.stream, map[string]any{"seq": seq})
		if err != nil {
			return err
		}
		if m == nil {
			// It may have been removed since the question.
			if left, err := LeftOut(ctx, stream, seq-1, seq+1); err != nil {
				return fmt.Errorf("ask for what was deleted from stream %s: %w", p.stream, err)
			} else if len(left) == 0 {
				continue
			}
			return Unreadable(stream.CachedInfo(), seq)
		}
		do(m.direct(), seq)
	}
	return nil
}

// direct is the message as a direct get returns it.
func (m *Stored) direct() *nats.Msg {
	header, _ := nats.DecodeHeadersMsg(m.Header) // none, if it has none
	if header == nil {
		header = nats.Header{}
	}
	header.Set(jetstream.SubjectHeader, m.Subject)
	header.Set(jetstream.TimeStampHeaer, m.Time.Format(time.RFC3339Nano))
	return &nats.Msg{Header: header, Data: m.Data}
}
