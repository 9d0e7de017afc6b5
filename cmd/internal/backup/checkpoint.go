package backup

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// checkpoint is the stored checkpoint of a shard, as shard.Checkpoint writes it. Fields that a
// backup does not need stay as they are.
type checkpoint struct {
	Seq       uint64       `json:"seq"`
	Watermark int64        `json:"watermark"`
	Stamp     string       `json:"stamp"`
	From      events.Place `json:"from"`
	Origin    uint64       `json:"origin"`
	fields    map[string]json.RawMessage
}

func parseCheckpoint(m *message) (c checkpoint, err error) {
	if m == nil {
		return c, nil
	}
	if err := wire.CheckStored("the checkpoint", m.Data); err != nil {
		return c, err
	}
	err = json.Unmarshal(m.Data, &c)
	if err == nil {
		err = json.Unmarshal(m.Data, &c.fields)
	}
	if err != nil {
		return c, fmt.Errorf("the checkpoint is not valid: %w", err)
	}
	return c, nil
}

// encode is the checkpoint as it is stored.
func (c checkpoint) encode() ([]byte, error) {
	for name, value := range map[string]any{"seq": c.Seq, "watermark": c.Watermark, "stamp": c.Stamp, "from": c.From} {
		var err error
		if c.fields[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	return json.Marshal(c.fields)
}

// moveCheckpoint moves a checkpoint back to the end of its log.
func (c *Contents) moveCheckpoint(m *message, log *streamContents) error {
	point, err := parseCheckpoint(m)
	if err != nil {
		return err
	}
	was := point
	if point.Seq > log.end {
		// Where the log is not whole, its greatest stamp may be missing.
		point.Seq, point.Watermark, point.Stamp = log.end, log.lastInstant(), log.stamp.String()
	}
	if len(c.changed) > 0 { // isRestored may leave out what lapse has to look up, from the last instant on
		point.Watermark = min(point.Watermark, log.lastInstant()-1)
	}
	point.From = log.from(was, point)
	m.Data, err = point.encode()
	return err
}

// from is the place behind which the stream of events stores all outputs that are caused after a
// checkpoint, which was moved back. It is zero, and lapse reads the whole stream, if none is known.
//
// The checkpoint's own place holds for what is caused after it, and before for what is caused after
// the end of the log, or in its last instant.
func (s *streamContents) from(was, moved checkpoint) events.Place {
	isMoved := moved.Seq < was.Seq || moved.Watermark < was.Watermark
	atEnd := moved.Seq >= s.end && moved.Watermark >= s.lastInstant()-1
	if atEnd && (isMoved || was.From.Seq == 0) || isMoved && s.before.Seq < was.From.Seq {
		return s.before
	}
	return was.From
}

// follow notes the last output of each log before the first that was caused after the end of the
// log, or in its last instant.
func (c *Contents) follow(m *message) {
	s, _, err := c.cause(m)
	if err != nil || s == nil || s.passed {
		return
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	at, ok := s.outputs.Output(m.Seq, m.Subject, header)
	if err != nil || !ok { // not from this log
		return
	}
	var expired wire.Time
	if text := header.Get("ce-time"); text != "" && expired.UnmarshalText([]byte(text)) != nil || at.Key.Seq > s.end || int64(expired) >= s.lastInstant() {
		s.passed = true
		return
	}
	s.before = at
}
