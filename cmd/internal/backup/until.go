package backup

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// margin is how many sequences a restored log, and the restored stream of events, leave to the
// original: it may have used them after the backup. Then etags, and the ids of events, do not
// come twice. It is no more because NATS lists them for a client that asks which messages were
// deleted.
const margin = 1 << 20

// next is the first sequence that a restored stream uses.
func (c *Contents) next(s *streamContents) uint64 {
	if !c.isLog(s.Name) && s.Name != c.Prefix.EventsStream() || s.state.LastSeq == 0 {
		return s.end + 1 // configurations have no gaps
	}
	return max(s.state.LastSeq, c.end.Last[s.Name]) + margin + 1
}

// rewrite copies the archive of a stream, as it is to be restored.
func (c *Contents) rewrite(s *streamContents, in io.Reader, out io.Writer) error {
	from, err := openArchive(in)
	if err != nil {
		return err
	}
	var durable []consumer
	for _, one := range from.Consumers {
		if one.Durable() {
			durable = append(durable, one)
		}
	}
	to, err := newArchiveWriter(out, c.restoredState(s), durable)
	if err != nil {
		return err
	}
	edit := c.edit(s)
	for {
		m, err := from.Next()
		if err != nil {
			return err
		}
		if m == nil {
			if c.pauses(s) {
				err = to.Message(c.pauseMessage(s))
			}
			return errors.Join(err, to.Close())
		}
		stays, err := edit(m)
		if err == nil && stays {
			err = to.Message(m)
		}
		if err != nil {
			return err
		}
	}
}

// restoredState is the state that a restored stream has. NATS fills the sequences that have no
// message.
func (c *Contents) restoredState(s *streamContents) state {
	restored := s.state
	restored.LastSeq = c.next(s) - 1
	if restored.FirstSeq > restored.LastSeq { // it is empty
		restored.FirstSeq, restored.Msgs = restored.LastSeq+1, 0
	}
	if restored.LastSeq == 0 {
		restored.FirstSeq = 0
	}
	if c.pauses(s) {
		restored.Msgs++
		restored.FirstSeq = min(restored.FirstSeq, s.end+1)
	}
	restored.Msgs = min(restored.Msgs, restored.LastSeq+1-restored.FirstSeq)
	return restored
}

// edit returns what changes the messages of a stream, or leaves them out.
func (c *Contents) edit(s *streamContents) func(*message) (stays bool, err error) {
	switch {
	case c.isLog(s.Name) || s.Name == c.root():
		return func(m *message) (bool, error) { return m.Seq <= s.end, nil }
	case s.Name == c.Prefix.EventsStream():
		return c.isRestored
	case s.Name == c.Prefix.CheckpointStream():
		return c.moveBack
	}
	return func(*message) (bool, error) { return true, nil }
}

// cause is the message, of a log, that a message of the stream of events names; log is nil if that is
// no output.
func (c *Contents) cause(m *message) (log *streamContents, seq uint64, err error) {
	rest, ok := strings.CutPrefix(m.Subject, string(c.Prefix)+".")
	kind, _, _ := strings.Cut(rest, ".")
	if !ok || kind != "expired" && kind != "expiring" && kind != "due" && kind != "changed" && kind != "rejected" {
		return nil, 0, nil
	}
	name, number := m.Value(wire.HeaderStream), m.Value(wire.HeaderSeq)
	if kind != "rejected" {
		collection := collectionOf(m)
		shard := 0 // which publishes drops
		if token := m.Value("ce-subject"); token != "" {
			shard = wire.ShardOf(c.Shards, collection, token)
		}
		id, _, _ := strings.Cut(m.Value("ce-id"), "/expiring/")
		if kind == "changed" {
			id = id[:max(0, strings.LastIndexByte(id, '/'))]
		}
		name, number = c.logs()[shard], id[strings.LastIndexByte(id, '/')+1:]
	}
	log = c.stream(name)
	if seq, err = strconv.ParseUint(number, 10, 64); err != nil || log == nil {
		return nil, 0, fmt.Errorf("message %d of %s does not name the message that has caused it", m.Seq,
			c.Prefix.EventsStream())
	}
	return log, seq, nil
}

// collectionOf is the collection of an event, a due message, a change or a warning. The subject of a due message
// does not tell it.
func collectionOf(m *message) string {
	source := m.Value("ce-source")
	return source[strings.LastIndexByte(source, '/')+1:]
}

// isRestored reports whether a message of the stream of events follows from messages of the logs
// that are restored. The others are left out: lapse would take them for proof that the events of
// earlier versions were published. An event or a warning of a version that is restored may follow from
// a configuration that is not; a rejection or a change follows from its message alone.
func (c *Contents) isRestored(m *message) (bool, error) {
	s, n, err := c.cause(m)
	if s == nil || err != nil {
		return err == nil, err
	}
	changed, atEnd := false, false
	kind, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, string(c.Prefix)+"."), ".")
	if kind != "rejected" && kind != "changed" {
		atEnd, changed = c.changed[collectionOf(m)]
		changed = changed || c.paused // its event comes when the collection is resumed
	}
	later := false
	if changed {
		var expired wire.Time
		if err := expired.UnmarshalText([]byte(m.Value("ce-time"))); err != nil {
			return false, fmt.Errorf("message %d of %s: its ce-time is not valid: %w", m.Seq, c.Prefix.EventsStream(),
				err)
		}
		// A snapshot may be without what expired in the last instant. So the event of that stays, unless
		// it may follow from a configuration after the end.
		later = int64(expired) > s.lastInstant() || atEnd && int64(expired) == s.lastInstant()
	}
	return n <= s.end && !later, nil
}

// moveBack moves a checkpoint back to the end of its log, and removes later snapshots from a
// record.
func (c *Contents) moveBack(m *message) (bool, error) {
	for shard := range c.Shards {
		switch m.Subject {
		case c.Prefix.CheckpointSubject(checkpointKey(shard)):
			return true, c.moveCheckpoint(m, c.log(shard))
		case c.Prefix.CheckpointSubject(wire.SnapshotKey(shard)):
			r, err := parseRecord(m)
			if err != nil {
				return false, err
			}
			r.Keep(c.stays(shard))
			return true, r.store()
		}
	}
	return true, nil // what a later version has stored
}

// stays returns what reports whether a snapshot of a shard is not later than its log.
func (c *Contents) stays(shard int) func(wire.Generation) bool {
	log := c.log(shard)
	return func(g wire.Generation) bool { return g.Offset <= log.end }
}

// lastInstant is the log time at the end of a log. A configuration after the end may have the
// same, and what it made expire too.
func (s *streamContents) lastInstant() int64 { return millisecond(s.logTime) }

// millisecond is a stamp in milliseconds.
func millisecond(stamp int64) int64 { return stamp / int64(time.Millisecond) }

// configured is the configuration of a restored stream: while it is restored and, when it is
// complete, at last.
func (c *Contents) configured(s *streamContents, was jetstream.StreamConfig, replicas int, id string) (
	first, last jetstream.StreamConfig,
) {
	last = was
	last.Metadata = map[string]string{backupKey: id}
	for key, value := range was.Metadata {
		if !strings.HasPrefix(key, "_nats.") { // the server's own
			last.Metadata[key] = value
		}
	}
	takesWrites := c.isLog(s.Name) || s.Name == c.root()
	if takesWrites {
		end := s.end
		if c.pauses(s) {
			end++
		}
		last.Metadata[wire.RestoredKey] = wire.Restored{Identity: s.identity, End: end, Next: c.next(s)}.String()
		last.MaxAge = 0 // what is older would go before lapse has read it
		last.DenyDelete = true
	}
	if replicas > 0 {
		last.Replicas = replicas
	}
	first = last
	first.Metadata = maps.Clone(last.Metadata)
	first.Metadata[wire.FormatKey] = wire.Restoring
	if takesWrites {
		first.Subjects, first.Sources = c.restoringSubjects(s.Name), nil
		first.DenyDelete = false // see restorer.removeMarked
	}
	return first, last
}

// restoringSubjects are those of a log, or of the stream of configurations, while it is restored.
func (c *Contents) restoringSubjects(name string) []string {
	return []string{string(c.Prefix) + ".restoring." + name}
}

// pause notes that all collections are to be paused. It returns an error if some log would get a configuration of a
// collection after that, which ends the pause.
func (c *Contents) pause() error {
	if len(c.unclear) > 0 {
		slices.Sort(c.unclear)
		return fmt.Errorf("the configuration of %s had come to some logs only when the backup was taken, so it cannot be "+
			"restored paused: use --until an earlier instant. Nothing is changed", strings.Join(c.unclear, ", "))
	}
	c.paused = true
	return nil
}

// pauses reports whether a stream is a log that is restored with a message that pauses all collections.
func (c *Contents) pauses(s *streamContents) bool {
	return c.paused && c.isLog(s.Name) && s.state.LastSeq > 0
}

// pauseMessage is the message that pauses all collections, behind the end of a log. It has the stamp of that, so what
// has expired after it waits.
func (c *Contents) pauseMessage(s *streamContents) *message {
	shard := slices.Index(c.logs(), s.Name)
	return &message{Seq: s.end + 1, Stamp: max(s.logTime, 1), Subject: c.Prefix.Log(shard, c.Shards).Pause()}
}
