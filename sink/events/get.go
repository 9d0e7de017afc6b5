package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Stored is a message as the leader of a stream returns it.
type Stored struct {
	Seq     uint64    `json:"seq"`
	Subject string    `json:"subject"`
	Header  []byte    `json:"hdrs"` // as on the wire
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// GetMessage asks the leader of a stream for a message, and returns nil if there is none. The request is that
// of STREAM.MSG.GET. The
// client library would use direct access, and ask a replica that may lag behind. A leader that was
// deposed and does not know it may answer too.
func GetMessage(ctx context.Context, nc *nats.Conn, stream string, request any) (*Stored, error) {
	return GetFrom(ctx, nc, "$JS.API", stream, request)
}

// GetFrom is GetMessage where the API of JetStream has a prefix of its own, as in another domain.
func GetFrom(ctx context.Context, nc *nats.Conn, api, stream string, request any) (*Stored, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	reply, err := nc.RequestWithContext(ctx, api+".STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *Stored             `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("decode the answer of stream %s: %w", stream, err)
	}
	if e := answer.Error; e != nil {
		switch e.ErrorCode {
		case jetstream.JSErrCodeMessageNotFound:
			return nil, nil
		case jetstream.JSErrCodeStreamNotFound:
			return nil, jetstream.ErrStreamNotFound
		}
		return nil, e
	}
	if answer.Message == nil {
		return nil, fmt.Errorf("the answer of stream %s has neither a message nor an error", stream)
	}
	return answer.Message, nil
}

// Holds reports whether the stream still has what it had stored at a place. What its limits have
// removed since counts as held, and so does what a person has removed: a stream that has lost its end
// and has grown again has another message there. It returns false only if no server has it: for a
// stream with replicas it stores a message, whose sequence shows where the stream ends.
func (p *Publisher) Holds(ctx context.Context, source Source, at Place) (bool, error) {
	if at.Seq == 0 {
		return true, nil
	}
	return p.holds(ctx, at.Seq, func(m *Stored) bool {
		h, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return false // another message: what lapse stores has headers
		}
		key, ok := source.keyOf(m.Subject, h)
		return ok && key == at.Key
	})
}

// holds is Holds of a sequence, where is tells whether a message is the one that was stored there.
func (p *Publisher) holds(ctx context.Context, seq uint64, is func(*Stored) bool) (bool, error) {
	var end uint64
	for tries := 1; ; tries++ {
		m, err := p.message(ctx, seq)
		if err != nil {
			return false, err
		}
		if m != nil {
			return is(m), nil
		}
		state, err := p.state(ctx)
		if err != nil {
			return false, err
		}
		if state.LastSeq >= seq && state.LastSeq >= end { // it was removed, or something was stored between the two answers
			m, err := p.message(ctx, seq)
			return err == nil && (m == nil || is(m)), err
		}
		if !p.replicated.Load() {
			return false, nil
		}
		// The leader may be one that was deposed.
		if end == 0 {
			if end, err = p.barrier(ctx); err != nil {
				return false, err
			}
		}
		if end <= seq {
			return false, nil
		}
		if err := pause(ctx, tries, errBehind); err != nil {
			return false, err
		}
	}
}

// message asks the leader of the stream for the message at a sequence; nil if there is none.
func (p *Publisher) message(ctx context.Context, seq uint64) (*Stored, error) {
	m, err := GetMessage(ctx, p.js.Conn(), p.stream, map[string]any{"seq": seq})
	if err != nil {
		return nil, fmt.Errorf("read message %d of stream %s: %w", seq, p.stream, err)
	}
	return m, nil
}

// Info is what the leader of the stream tells of it.
func (p *Publisher) Info(ctx context.Context) (*jetstream.StreamInfo, error) {
	stream, err := p.js.Stream(ctx, p.stream)
	if err != nil {
		return nil, fmt.Errorf("ask for the state of stream %s: %w", p.stream, err)
	}
	return stream.CachedInfo(), nil
}

// state is the state of the stream.
func (p *Publisher) state(ctx context.Context) (s jetstream.StreamState, err error) {
	info, err := p.Info(ctx)
	if err == nil {
		s = info.State
	}
	return s, err
}

// Ends is the first sequence that the stream has, and the last.
func (p *Publisher) Ends(ctx context.Context) (first, last uint64, err error) {
	s, err := p.state(ctx)
	return s.FirstSeq, s.LastSeq, err
}

// barrier stores a message that says nothing, and returns its sequence. If that has taken the place of another message,
// the stream has lost its end.
func (p *Publisher) barrier(ctx context.Context) (seq uint64, err error) {
	if p.mirror { // nothing is stored in it; a leader that was deposed is corrected with the next question
		s, err := p.state(ctx)
		return s.LastSeq, err
	}
	before := p.Last().Seq
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: p.prefix.Barrier(),
		Header: nats.Header{jetstream.ExpectedStreamHeader: {p.stream}}})
	if err != nil {
		return 0, refusedBy(p.stream, p.prefix.Barrier(), err)
	}
	if ack.Sequence <= before {
		p.NoteLoss()
	}
	return ack.Sequence, nil
}

// errBehind: the answer is out of date.
var errBehind = errors.New("the answer comes from a server that does not have the end of the stream of events")

// replicaTimeout is how long a read waits for the next message of a replica, which may have died, before it
// asks again.
const replicaTimeout = time.Second

// atOnce limits what one request reads. Without a limit of its bytes, the answer may be as large as
// the server lets its buffer for a client grow, and the server could then close the connection.
const (
	messagesAtOnce = 4096
	bytesAtOnce    = 4 << 20
)

// standsAfter is how long a read may bring nothing. It has no limit in all: a stream may be of any size.
const standsAfter = 30 * time.Second

var errStands = fmt.Errorf("nothing came for %s", standsAfter)

// read calls do with the messages behind from and up to a sequence, in their order. Any replica may
// answer, and may lag behind: read goes on until it has them all, or nothing comes any more.
func (p *Publisher) read(ctx context.Context, from, upTo uint64, do func(*nats.Msg, uint64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stands := time.AfterFunc(standsAfter, func() { cancel(errStands) })
	defer stands.Stop()
	came := func(m *nats.Msg, seq uint64) {
		stands.Reset(standsAfter)
		do(m, seq)
	}
	for tries := 1; from < upTo; tries++ {
		last, err := p.readSome(ctx, from, upTo, came)
		if last > from {
			from, tries = last, 0
		}
		switch {
		case p.replicated.Load() && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		case err != nil:
			return fmt.Errorf("read stream %s: %w", p.stream, cmp.Or(context.Cause(ctx), err))
		case tries == 0:
			continue
		default: // nothing is there, or the replica does not have it yet
			// In this order: what is stored between the two answers is in the second.
			state, err := p.state(ctx)
			if err != nil {
				return err
			}
			next, err := GetMessage(ctx, p.js.Conn(), p.stream, map[string]any{"seq": from + 1, "next_by_subj": ">"})
			if err != nil {
				return fmt.Errorf("read stream %s: %w", p.stream, err)
			}
			if state.LastSeq >= upTo && (next == nil || next.Seq > upTo) {
				return p.passed(ctx, from, upTo+1, came)
			}
			if !p.replicated.Load() && next == nil {
				return fmt.Errorf("read stream %s: %w: it ends at sequence %d, and had %d", p.stream, errBehind, state.LastSeq,
					upTo)
			}
		}
		if err := pause(ctx, max(1, tries), errBehind); err != nil {
			return err
		}
	}
	return nil
}

// readSome makes one request, by direct get, and returns the sequence up to which it has called do.
//
// GetBatch of jetstreamext (v0.3.0) cannot be used: it ends without an error at a deadline, and a
// part of an answer that was lost on the way is not noticed. An event that is stored would be
// published again.
func (p *Publisher) readSome(
	ctx context.Context, from, upTo uint64, do func(*nats.Msg, uint64),
) (last uint64, err error) {
	limit := answerTimeout
	if p.replicated.Load() {
		limit = replicaTimeout
	}
	request, err := json.Marshal(map[string]any{"seq": from + 1, "batch": min(uint64(messagesAtOnce), upTo-from),
		"max_bytes": bytesAtOnce})
	if err != nil {
		return 0, err
	}
	nc := p.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	_ = sub.SetPendingLimits(-1, -1)
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+p.stream, inbox, request); err != nil {
		return 0, err
	}
	before := "0" // sequence of the message before, which each part of the answer repeats
	for {
		next, cancel := context.WithTimeout(ctx, limit)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		if err != nil {
			return last, err
		}
		switch status := m.Header.Get("Status"); {
		case status == "404":
			return last, nil
		case status != "" && status != "204" || len(m.Header) == 0:
			return last, fmt.Errorf("%s %s", status, m.Header.Get("Description"))
		case m.Header.Get("Nats-Last-Sequence") != before:
			return last, errors.New("a part of the answer was lost on the way")
		case status == "204":
			return last, nil
		}
		before = m.Header.Get(jetstream.SequenceHeader)
		seq, err := strconv.ParseUint(before, 10, 64)
		if err != nil {
			return last, fmt.Errorf("the sequence of a message: %w", err)
		}
		if err := p.passed(ctx, max(from, last), min(seq, upTo+1), do); err != nil {
			return last, err
		}
		if seq > upTo {
			return upTo, nil
		}
		do(m, seq)
		last = seq
	}
}
