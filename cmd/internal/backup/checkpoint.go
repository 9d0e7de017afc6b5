package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// checkpoint is what a backup needs of the stored checkpoint of a shard, which shard.Checkpoint writes.
type checkpoint struct {
	Seq       uint64       `json:"seq"`
	Watermark int64        `json:"watermark"`
	Stamp     string       `json:"stamp"`
	From      events.Place `json:"from"`
	Origin    uint64       `json:"origin"`
}

// checkpointKey is the key of a shard's checkpoint in the bucket of checkpoints.
func checkpointKey(shard int) string { return "shard." + strconv.Itoa(shard) }

// parseCheckpoint reads a checkpoint; it is zero if there is none.
func parseCheckpoint(m *message) (c checkpoint, err error) {
	if m == nil {
		return c, nil
	}
	if err := wire.CheckStored("the checkpoint", m.Data); err != nil {
		return c, err
	}
	if err = json.Unmarshal(m.Data, &c); err != nil {
		err = fmt.Errorf("the checkpoint is not valid: %w", err)
	}
	return c, err
}

// store changes the stored checkpoint. Its other fields stay.
func (c checkpoint) store(m *message) error {
	own, err := json.Marshal(c)
	if err != nil {
		return err
	}
	var fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(m.Data, &fields), json.Unmarshal(own, &fields)); err != nil {
		return err
	}
	m.Data, err = json.Marshal(fields)
	return err
}

// record is the record of a shard's snapshots, and the message that has it: nil if there is none.
type record struct {
	*message
	wire.SnapshotRecord
}

// parseRecord reads a record; it names no snapshot if there is none.
func parseRecord(m *message) (r record, err error) {
	if r.message = m; m == nil {
		return r, nil
	}
	if err = wire.CheckStored("it", m.Data); err == nil {
		err = json.Unmarshal(m.Data, &r.SnapshotRecord)
	}
	return r, err
}

// store changes the stored record.
func (r record) store() (err error) {
	r.Data, err = json.Marshal(r.SnapshotRecord)
	return err
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
	return point.store(m)
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
	text := header.Get("ce-time")
	if text != "" && expired.UnmarshalText([]byte(text)) != nil || at.Key.Seq > s.end ||
		int64(expired) >= s.lastInstant() {
		s.passed = true
		return
	}
	s.before = at
}
