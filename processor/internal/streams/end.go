package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// ClosedSubject is the only subject of a stream that takes no messages: one of a former first region, or one that a
// promotion has made of a mirror and not opened yet.
func ClosedSubject(domain, stream string) string { return "_LAPSE.closed." + domain + "." + stream }

const (
	wrongLastSeq = jetstream.ErrorCode(10071) // of a publication that expects another last sequence
	tooMany      = jetstream.ErrorCode(10167) // messages wait
	endAgain     = 3 * time.Second
	endSoon      = 50 * time.Millisecond
)

// impossible is a sequence that no stream has.
const impossible = "9007199254740991"

// passQueue returns once a stream that was closed has taken all that it will take, and the last sequence of that. The server
// goes on to store and to acknowledge what it had received before, up to 10,000 messages. So this publishes a message
// that the stream must refuse, which comes behind those. It expects another last sequence: that is compared before a
// message goes to the replicas. (One that expects another last message id is compared by each replica, and nats-server
// 2.15 takes the difference for a failure to write, and stops the stream.)
func passQueue(ctx context.Context, nc *nats.Conn, subject string) (took uint64, err error) {
	answers, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return 0, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	m := &nats.Msg{Subject: subject, Reply: answers.Subject, Header: nats.Header{jetstream.ExpectedLastSeqHeader: {impossible}}}
	for {
		if err := nc.PublishMsg(m); err != nil {
			return 0, err
		}
		asking, cancel := context.WithTimeout(ctx, endAgain)
		answer, err := answers.NextMsgWithContext(asking)
		cancel()
		if ctx.Err() != nil {
			return 0, fmt.Errorf("no answer to a publication on %s: %w", subject, context.Cause(ctx))
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
				return 0, fmt.Errorf("a publication on %s was not refused", subject)
			case a.Error.ErrorCode == wrongLastSeq:
				_, _ = fmt.Sscanf(a.Error.Description, "wrong last sequence: %d", &took)
				return took, nil
			case a.Error.ErrorCode != tooMany:
				return 0, fmt.Errorf("publish on %s: %w", subject, a.Error)
			}
			again = backoff.Wait(ctx, endSoon)
		}
		if !again {
			return 0, fmt.Errorf("publish on %s: %w", subject, errors.Join(err, context.Cause(ctx)))
		}
	}
}

// end is the last message of a closed stream. A server that has just become the leader may not have applied all that it
// has: on replicas two answers in a row have to agree.
func end(ctx context.Context, nc *nats.Conn, stream jetstream.Stream) (is wire.End, err error) {
	c := stream.CachedInfo().Config
	if len(c.Subjects) == 0 {
		return is, mismatch(c.Name, "it was not closed")
	}
	for asked := 0; ; asked++ {
		took, err := passQueue(ctx, nc, c.Subjects[0])
		if err != nil {
			return is, err
		}
		before := is
		info, err := stream.Info(ctx)
		var last *events.Stored
		if err == nil {
			last, err = events.GetMessage(ctx, nc, c.Name, map[string]any{"last_by_subj": ">"})
		}
		switch {
		case RefusedForNow(err): // it has just got another leader
		case err != nil:
			return is, fmt.Errorf("read the last message of stream %s: %w", c.Name, err)
		default:
			if is = (wire.End{}); last != nil {
				is = wire.End{Seq: last.Seq, Stamp: last.Time.UnixNano()}
			}
			if info.State.LastSeq >= took && (c.Replicas <= 1 || asked > 0 && is == before) {
				return is, nil
			}
		}
		if !backoff.Wait(ctx, endSoon) {
			return is, context.Cause(ctx)
		}
	}
}
