package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// errTooLarge: a message does not fit the limits of the server or the stream, and
// cannot be made smaller.
var errTooLarge = errors.New("the message is too large")

// otherSize is more than the size of an event's subject and headers, which have the id four
// times and the collection three times.
const otherSize = 16 << 10

// setLimits stores what the stream is and allows.
func (p *Publisher) setLimits(config jetstream.StreamConfig) {
	p.replicated.Store(config.Replicas > 1)
	if config.Replicas > 1 {
		p.acks.limit.Store(int64(answerTimeout))
	}
	p.takesFast.Store(config.AllowBatchPublish)
	p.largest.Store(maxBatch)
	p.maxSize.Store(int64(config.MaxMsgSize))
}

// refreshLimits asks the stream what it allows now.
func (p *Publisher) refreshLimits(ctx context.Context) error {
	stream, err := p.js.Stream(ctx, p.stream)
	if err != nil {
		return fmt.Errorf("ask for the limits of stream %s: %w", p.stream, err)
	}
	p.setLimits(stream.CachedInfo().Config)
	return nil
}

// limit is the largest size of a message in bytes, and the setting that limits it.
func (p *Publisher) limit() (most int64, setting string) {
	most, setting = p.js.Conn().MaxPayload(), "max_payload of the NATS server"
	if size := p.maxSize.Load(); size > 0 && size < most {
		most, setting = size, "max_msg_size of stream "+p.stream
	}
	return most, setting
}

// fit makes messages smaller that do not fit the limit: an event, a change or a warning goes without its
// document, a due message without its body, and a rejection with the beginning of its body.
func (p *Publisher) fit(ctx context.Context, messages []Message) error {
	most, setting := p.limit()
	asked := false
	for _, m := range messages {
		if int64(len(m.msg.Data)) <= most-otherSize || m.size() <= most {
			continue
		}
		if !asked && p.maxSize.Load() > 0 { // somebody may have raised it
			if err := p.refreshLimits(ctx); err != nil {
				return err
			}
			asked = true
			if most, setting = p.limit(); m.size() <= most {
				continue
			}
		}
		if err := m.shrink(most, setting); err != nil {
			return err
		}
	}
	return nil
}

// shrink makes messages smaller that the server refused as too large: its limits are lower
// than they were.
func (p *Publisher) shrink(ctx context.Context, messages []Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := p.refreshLimits(ctx); err != nil {
		return err
	}
	most, setting := p.limit()
	for _, m := range messages {
		before := m.size()
		if err := m.shrink(most, setting); err != nil {
			return err
		}
		if m.size() >= before {
			return fmt.Errorf("publish to %s: %w: it has %d bytes, and was refused although %s is %d", m.msg.Subject,
				errTooLarge, before, setting, most)
		}
	}
	return nil
}

// size is the size that is limited: that of headers and data.
func (m Message) size() int64 {
	return int64(m.msg.Size() - len(m.msg.Subject) - len(m.msg.Reply))
}

// shrink makes a message fit a limit.
func (m Message) shrink(most int64, setting string) error {
	if m.size() <= most {
		return nil
	}
	whole := m.size()
	if _, event := m.msg.Header[ceID]; event {
		if err := m.omitDocument(); err != nil {
			return err
		}
	} else {
		m.truncate(most)
	}
	if least := m.size(); least > most {
		return fmt.Errorf("publish to %s: %w: it has %d bytes, and %d without its document or body, but %s is %d: set it "+
			"to %d or more",
			m.msg.Subject, errTooLarge, whole, least, setting, most, least)
	}
	return nil
}

// omitDocument removes the document from an event, a due message, a change or a warning, and marks it.
func (m Message) omitDocument() error {
	if m.isDue() {
		if len(m.msg.Data) > 0 {
			m.msg.Header[wire.HeaderTruncated] = []string{strconv.Itoa(len(m.msg.Data))}
			m.msg.Data = nil
		}
		return nil
	}
	var event wire.Event
	var warning wire.Expiring
	var change wire.Change
	into := map[byte]any{keyExpired: &event, keyExpiring: &warning, keyChanged: &change}[m.Key.Kind]
	if err := json.Unmarshal(m.msg.Data, into); err != nil {
		return fmt.Errorf("publish to %s: make it smaller: %w", m.msg.Subject, err)
	}
	event.Document, event.Omitted = nil, true
	warning.Document, warning.Omitted = nil, true
	switch m.Key.Kind {
	case keyExpired:
		m.msg.Data = event.Encode()
	case keyExpiring:
		m.msg.Data = warning.Encode()
	case keyChanged: // of a delete or a drop there is no document to omit
		change.Document, change.Omitted = nil, change.Omitted || len(change.Document) > 0
		m.msg.Data = change.Encode()
	}
	return nil
}

// truncate makes a rejection fit a limit: it cuts the error, then the body, then the subject.
// If it cuts the body, the header Lapse-Truncated has the length that the body had.
func (m Message) truncate(most int64) {
	h := m.msg.Header
	over := func() int { return int(m.size() - most) }
	if text := h[wire.HeaderError][0]; over() > 0 {
		h[wire.HeaderError] = []string{shorten(text, len(text)-longestError)}
	}
	if over() > 0 && len(m.msg.Data) > 0 {
		if h[wire.HeaderTruncated] == nil {
			h[wire.HeaderTruncated] = []string{strconv.Itoa(len(m.msg.Data))}
			h[wire.HeaderError][0] += " This rejection carries only the beginning of the body."
		}
		m.msg.Data = m.msg.Data[:max(0, len(m.msg.Data)-over())]
	}
	h[wire.HeaderSubject] = []string{shorten(h[wire.HeaderSubject][0], over())}
}
