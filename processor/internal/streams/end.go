package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// ClosedSubject is the only subject of a stream that takes no messages: one of a former first region, or one that a
// promotion has made of a mirror and not opened yet.
func ClosedSubject(domain, stream string) string { return "_LAPSE.closed." + domain + "." + stream }

const (
	wrongLastID = jetstream.ErrorCode(10070) // of a publication that expects another last message
	tooMany     = jetstream.ErrorCode(10167) // messages wait
	endAgain    = 3 * time.Second
	endSoon     = 50 * time.Millisecond
)

// passQueue returns once a stream that was closed has stored all that it will store. The server goes on to store and to
// acknowledge what it had received before, up to 10,000 messages. So this publishes a message that the stream must
// refuse: on replicas too it is refused only when those before it are stored.
func passQueue(ctx context.Context, nc *nats.Conn, subject string) error {
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return err
	}
	defer func() { _ = answers.Unsubscribe() }()
	m := &nats.Msg{Subject: subject, Reply: answers.Subject, Header: nats.Header{jetstream.ExpectedLastMsgIDHeader: {nuid.Next()}}}
	for {
		if err := nc.PublishMsg(m); err != nil {
			return err
		}
		asking, cancel := context.WithTimeout(ctx, endAgain)
		answer, err := answers.NextMsgWithContext(asking)
		cancel()
		if ctx.Err() != nil {
			return fmt.Errorf("no answer to a publication on %s: %w", subject, context.Cause(ctx))
		}
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
		if err == nil || errors.Is(err, nats.ErrNoResponders) {
			var a struct{ Error *jetstream.APIError }
			if err == nil && len(answer.Data) > 0 {
				err = json.Unmarshal(answer.Data, &a)
			}
			switch {
			case a.Error == nil && (err != nil || len(answer.Data) == 0): // nobody listens, at this moment
			case a.Error == nil:
				return fmt.Errorf("a publication on %s was not refused", subject)
			case a.Error.ErrorCode == wrongLastID:
				return nil
			case a.Error.ErrorCode != tooMany:
				return fmt.Errorf("publish on %s: %w", subject, a.Error)
			}
			again = backoff.Wait(ctx, endSoon)
		}
		if !again {
			return fmt.Errorf("publish on %s: %w", subject, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// end is the end of a closed stream. A server that has just become the leader may not have applied all that it has: on
// replicas two answers in a row have to agree.
func end(ctx context.Context, nc *nats.Conn, stream jetstream.Stream) (is wire.End, err error) {
	c := stream.CachedInfo().Config
	if len(c.Subjects) != 1 {
		return is, mismatch(c.Name, "it was not closed")
	}
	for asked := 0; ; asked++ {
		if err := passQueue(ctx, nc, c.Subjects[0]); err != nil {
			return is, err
		}
		before := is
		m, err := events.GetMessage(ctx, nc, c.Name, map[string]any{"last_by_subj": ">"})
		if err != nil {
			return is, fmt.Errorf("read the last message of stream %s: %w", c.Name, err)
		}
		if m != nil {
			is = wire.End{Seq: m.Seq, Stamp: m.Time.UnixNano()}
		} else { // it has removed all that it had
			info, err := stream.Info(ctx)
			if err != nil {
				return is, fmt.Errorf("look up stream %s: %w", c.Name, err)
			}
			is = wire.End{Seq: info.State.LastSeq}
		}
		if c.Replicas <= 1 || asked > 0 && is == before {
			return is, nil
		}
		if !backoff.Wait(ctx, endSoon) {
			return is, context.Cause(ctx)
		}
	}
}
