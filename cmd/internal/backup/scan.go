package backup

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Until is where the log is to end: before a message, or before an instant. The zero value is the
// end of the backup.
type Until struct {
	Seq  uint64
	Time time.Time
}

// ends reports whether a message of a log, at a log time, is the first that is left out.
func (u Until) ends(m *message, logTime int64) bool {
	return u.Seq != 0 && m.Seq >= u.Seq || !u.Time.IsZero() && logTime >= u.Time.UnixNano()
}

// Contents are what a backup has, as a scan has found it.
type Contents struct {
	Header
	Bytes   int64            `json:"bytes,omitempty"` // the size of the file
	Streams []streamContents `json:"streams"`

	paused  bool     // all collections are to be paused
	unclear []string // collections whose last configuration some logs have, and others lack
	end     end
	bucket  map[string]*message
	latest  map[string]uint64 // by collection: its last configuration
	// collections that were configured after the end of a log: whether perhaps in its last instant
	changed map[string]bool
}

// streamContents is what a backup has of a stream.
type streamContents struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	First    uint64 `json:"firstSeq"`
	Last     uint64 `json:"lastSeq"`

	earliest wire.Generation // of a log: where its shard can begin; the origin, if it needs no snapshot
	state    state
	identity int64
	copied   uint64 // of a log: the last configuration that it has, or had before it was truncated
	seen     uint64 // of a log: the last configuration that the backup has of it, also after its end
	end      uint64 // the sequence with which it is to end
	logTime  int64  // the greatest stamp up to there, in Unix nanoseconds
	stamp    store.Stamp

	outputs events.Source // of a log
	before  events.Place  // of a log: see Contents.follow
	passed  bool
}

// count counts a message.
func (s *streamContents) count(m *message) {
	s.Messages++
	s.First, s.Last = cmp.Or(s.First, m.Seq), m.Seq
}

// Scan reads a backup to its end. It returns an error unless all of it is there and undamaged, and
// finds out where each stream is to end.
func Scan(in io.Reader, until Until) (*Contents, error) {
	r, err := newReader(in)
	if err != nil {
		return nil, err
	}
	c := &Contents{Header: r.header, bucket: make(map[string]*message), latest: make(map[string]uint64),
		changed: make(map[string]bool)}
	for {
		part, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := c.scan(part, r, until); err != nil {
			// If the file is damaged there, that says more.
			if _, damage := io.Copy(io.Discard, r); damage != nil {
				return nil, damage
			}
			return nil, fmt.Errorf("stream %s in the backup: %w", part.Name, err)
		}
	}
	c.end = r.end
	for _, collection := range c.end.Configured {
		c.changed[collection] = true
	}
	for _, name := range append(c.logs(), c.root(), c.Prefix.EventsStream()) {
		if c.stream(name) == nil {
			return nil, fmt.Errorf("%w: it has no stream %s", errDamaged, name)
		}
	}
	return c, c.check(until)
}

// stream is what there is of a stream; nil if there is nothing.
func (c *Contents) stream(name string) *streamContents {
	i := slices.IndexFunc(c.Streams, func(s streamContents) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Streams[i]
}

// isLog reports whether a stream is a log.
func (c *Contents) isLog(name string) bool { return slices.Contains(c.logs(), name) }

// scan reads the archive of a stream.
func (c *Contents) scan(part stream, r io.Reader, until Until) error {
	if !slices.Contains(c.streams(), part.Name) || c.stream(part.Name) != nil {
		return errors.New("it does not belong there")
	}
	s := streamContents{Name: part.Name, identity: part.Identity}
	shard := slices.Index(c.logs(), part.Name)
	if shard >= 0 {
		region, err := wire.ParseRegion(part.Config.Metadata)
		if err != nil {
			return err
		}
		s.outputs = events.NewSource(c.Prefix.Log(shard, c.Shards), millisecond(part.Identity)).Continues(region.Former)
	}
	cuts := shard >= 0 || part.Name == c.root()
	greatest, over := int64(0), false
	state, err := visitAll(r, func(m *message) {
		s.count(m)
		greatest = max(greatest, m.Stamp)
		if cuts && !over && until.ends(m, greatest) {
			over, s.end = true, m.Seq-1
		}
		if collection, configures := strings.CutPrefix(m.Subject, c.Prefix.Config("")); configures {
			c.latest[collection] = m.Seq
			if over {
				c.changed[collection] = c.changed[collection] || millisecond(greatest) == s.lastInstant()
			}
		}
		if shard >= 0 {
			s.seen = max(s.seen, source(c.Prefix.Log(shard, c.Shards), m))
		}
		switch {
		case part.Name == c.Prefix.CheckpointStream():
			c.bucket[m.Subject] = m
		case part.Name == c.Prefix.EventsStream():
			c.follow(m)
		case cuts && !over:
			s.logTime, s.stamp = greatest, store.Stamp{Seq: m.Seq, At: m.Stamp}
			if shard >= 0 {
				s.copied = s.seen
			}
		}
	})
	if err != nil {
		return err
	}
	if s.state = state; !over {
		s.end = state.LastSeq
	}
	c.Streams = append(c.Streams, s)
	return nil
}

// source is the sequence that a message of a log has in the stream of configurations; 0 if it is
// not from there.
func source(log wire.Log, m *message) uint64 {
	s := log.ParseSubject(m.Subject)
	if !s.Sourced {
		return 0
	}
	return s.Source(nats.Header{"Nats-Stream-Source": {m.Value("Nats-Stream-Source")}})
}

// check returns an error unless the backup reaches to where it is to end, and back far enough for
// lapse to build Redis.
func (c *Contents) check(until Until) error {
	if until.Seq != 0 {
		log := c.stream(c.root())
		if c.Shards > 1 {
			return fmt.Errorf("the backup has %d logs, each with sequences of its own: use an instant", c.Shards)
		}
		if until.Seq > log.state.LastSeq+1 {
			return fmt.Errorf("the log in the backup ends at sequence %d, which is before %d: use a later backup",
				log.state.LastSeq, until.Seq)
		}
	}
	if !until.Time.IsZero() && until.Time.After(c.Taken) {
		return fmt.Errorf("the backup was taken at %s, which is before %s: use a later backup",
			wire.Time(c.Taken.UnixMilli()), wire.Time(until.Time.UnixMilli()))
	}
	for shard := range c.Shards {
		if err := c.begins(shard); err != nil {
			return err
		}
	}
	for _, name := range c.logs() {
		if log := c.stream(name); log.end < log.earliest.Offset {
			at := ""
			if log.earliest.Taken != 0 {
				at = fmt.Sprintf(" or the instant %s, when a snapshot was taken there", wire.Time(log.earliest.Taken))
			}
			return fmt.Errorf("this backup cannot be restored to so early: the earliest is sequence %d of %s%s: use an "+
				"earlier backup", log.earliest.Offset+1, name, at)
		}
	}
	if c.Shards > 1 {
		c.compareConfigs()
	}
	return nil
}

// compareConfigs compares the stream of configurations with what the logs have of it. A backup
// reads it after the logs, so it has all that they have, and may have more.
func (c *Contents) compareConfigs() {
	all, most := uint64(math.MaxUint64), uint64(0) // up to which configuration all logs have them, and one has
	seen := all                                    // up to which it is known when all logs got them
	for _, name := range c.logs() {
		log := c.stream(name)
		all, most, seen = min(all, log.copied), max(most, log.copied), min(seen, max(log.seen, log.copied))
	}
	configs := c.stream(c.root())
	configs.end = min(max(configs.end, most), configs.state.LastSeq)
	for collection, seq := range c.latest {
		if seq > all {
			c.changed[collection] = c.changed[collection] || seq > seen
			if seq <= configs.end {
				c.unclear = append(c.unclear, collection)
			}
		}
	}
}

// log is the log of a shard.
func (c *Contents) log(shard int) *streamContents { return c.stream(c.logs()[shard]) }

// begins finds out from where on a shard can be built. It returns an error if that is nowhere.
func (c *Contents) begins(shard int) error {
	log := c.log(shard)
	checkpoint, err := parseCheckpoint(c.bucket[c.Prefix.CheckpointSubject(checkpointKey(shard))])
	if err != nil {
		return fmt.Errorf("shard %d: %w", shard, err)
	}
	r, err := parseRecord(c.bucket[c.Prefix.CheckpointSubject(wire.SnapshotKey(shard))])
	if err != nil {
		return fmt.Errorf("the record of the snapshots of shard %d: %w", shard, err)
	}
	first, earliest, found := cmp.Or(log.First, log.state.FirstSeq), wire.Generation{Offset: checkpoint.Origin}, false
	if first <= checkpoint.Origin+1 {
		found = true
	} else {
		for _, g := range r.Generations {
			if g.Offset+1 >= first && (!found || g.Offset < earliest.Offset) {
				earliest, found = g, true
			}
		}
	}
	if !found {
		return fmt.Errorf("the log %s in the backup begins at sequence %d, and no snapshot reaches it: Redis cannot be "+
			"built from this backup", log.Name, first)
	}
	log.earliest = earliest
	r.Keep(c.stays(shard))
	for _, g := range r.Generations {
		log.copied = max(log.copied, g.Configured)
	}
	return nil
}
