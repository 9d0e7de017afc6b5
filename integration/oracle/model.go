package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink/wire"
)

// Message is a stored message of the log or of the events stream.
type Message = stored.Message

// Settings are the settings of the installation whose log the model folds.
type Settings struct {
	Prefix    wire.Prefix // wire.DefaultPrefix if empty
	Shards    int         // 1 if 0
	Shard     int         // whose log it is
	Created   wire.Time   // when the log was created
	MaxBody   int         // the longest body that lapse accepts; 1 MiB less 8 KiB if 0
	MaxLevels int         // the most levels of objects and arrays in a body that lapse accepts; 1000 if 0
}

// Name identifies a document.
type Name struct{ Collection, ID string }

func (n Name) String() string { return n.Collection + "/" + wire.EscapeID(n.ID) }

// Document is a version of a document.
type Document struct {
	Body   []byte
	Merged bool // Body is the result of a merge: its value counts, not its bytes
	Etag   wire.Etag
	Ts     wire.Time
	TTL    int32      // its own TTL in seconds; -1 never, 0 none
	Begin  wire.Time  // from which the TTL counts
	End    *wire.Time // the absolute deadline; nil if it has none
	Last   *wire.Time // it does not live longer, whatever its TTL is; nil if it has no such limit
	Limit  *wire.Time // that of the collection's maxLife, as it was at the last write or renewal; nil if it has none
	Took   int32      // the default that a renewed document has taken as its TTL, because it has a Limit; 0 if none
	Born   wire.Time  // when the document was created, as far as a Limit needs it; 0: at Ts
	Target string     // of the message that its expiry delivers in place of an event; "" if none
	Trace  string
}

// Expiry is an expiry event that must exist.
type Expiry struct {
	Name
	Document
	Bare      bool  // the event has no document
	Seconds   int32 // the TTL that counted; 0 if an absolute deadline or a limit did
	ExpiredAt wire.Time
}

// ID returns the ce-id of the event.
func (e Expiry) ID() string { return e.Name.String() + "/" + e.Etag.String() }

// Rejection is a rejection that must exist.
type Rejection struct {
	Seq     uint64
	Codes   []int // any of these codes is right
	Subject string
	Target  string // the subject of the rejection
	Body    []byte
	Trace   string
	Name    *Name // of the document; nil if the subject names none
}

// Collection is a collection's configuration.
type Collection struct {
	Default int32 // in seconds; -1 TTL is on without a default, 0 TTL is off
	Since   wire.Time
	NoIndex bool
	Lazy    bool
	Etag    wire.Etag // of the configuration message; 0 if there was none
	// Min and Max limit what a write says of its time to live, in seconds; 0 if there is no limit.
	Min, Max   int32
	WarnBefore []int32
	WarnSince  wire.Time // of the last change of WarnBefore
	Slides     wire.Slide
	Life       int32 // the longest life of a document, in seconds; 0 if there is no limit
	Bare       bool  // its events have no document
	Changes    bool  // its changes are published
	Paused     bool  // what expires gets its event later
	Indexes    []string
	Altered    int // changes of Default and Bare since it is paused
}

// Model is the state that a log leads to, and the events that it requires.
type Model struct {
	set        Settings
	seq        uint64        // the last message that was applied
	configured uint64        // the last one of the stream of configurations, if there are several shards
	former     []wire.Former // logs that this one continues, if its region was promoted
	restored   wire.Restored // the zero value if the log was not
	now        wire.Time     // log time: the greatest stamp up to seq

	docs        map[Name]Document
	held        map[Name]Expiry // what has expired in a collection that is paused
	collections map[string]Collection
	open        bool // every collection exists; else those that are configured
	// replyPrefixes are the subject prefixes, besides _INBOX, to which outcomes may go.
	replyPrefixes []string
	expire        agenda    // no document expires before its instant there
	remind        agenda    // nor has a warning before its instant here
	warned        wire.Time // the warnings up to this instant are recorded

	Expiries   []Expiry
	Warnings   []Warning
	Changes    []Change
	Rejections []Rejection
	Outcomes   map[uint64]wire.Outcome // of each write, configuration and drop, by sequence
	names      map[Name]bool           // of every document that a message addressed
	fates      map[wire.Etag]string    // what became of each version, to explain a finding
	outputs    map[Name][]string       // what each document must have published, in order, but for warnings
	notices    map[Name][]string       // the warnings and expirations of each document that has warnings, in order
	warns      bool                    // publishesWarnings
}

// NewModel returns the model of an empty log.
func NewModel(set Settings) *Model {
	set.Prefix = cmp.Or(set.Prefix, wire.DefaultPrefix)
	set.Shards = cmp.Or(set.Shards, 1)
	set.MaxBody = cmp.Or(set.MaxBody, 1<<20-8<<10)
	set.MaxLevels = cmp.Or(set.MaxLevels, 1000)
	return &Model{
		set: set, now: math.MinInt64, warned: math.MinInt64, docs: map[Name]Document{}, held: map[Name]Expiry{},
		collections: map[string]Collection{}, Outcomes: map[uint64]wire.Outcome{}, names: map[Name]bool{},
		fates: map[wire.Etag]string{}, outputs: map[Name][]string{}, notices: map[Name][]string{},
		warns: publishesWarnings,
	}
}

// log names the log that the model folds.
func (m *Model) log() wire.Log { return m.set.Prefix.Log(m.set.Shard, m.set.Shards) }

// Seq returns the sequence of the last message that was applied.
func (m *Model) Seq() uint64 { return m.seq }

// LogTime returns log time: the greatest stamp of the messages that were applied.
func (m *Model) LogTime() wire.Time { return m.now }

// Apply folds the next message of the log.
func (m *Model) Apply(msg Message) error {
	r := m.restored // a restored log goes on with a later sequence
	if msg.Seq != m.seq+1 && (m.seq != r.End || msg.Seq != r.Next) {
		return fmt.Errorf("the log has a gap: message %d follows %d", msg.Seq, m.seq)
	}
	m.seq = msg.Seq
	subject := m.log().ParseSubject(msg.Subject)
	published := subject.Published()
	rest, ok := strings.CutPrefix(published, string(m.set.Prefix)+".")
	if !ok {
		return fmt.Errorf("message %d: subject %s does not belong to the log", msg.Seq, msg.Subject)
	}
	msg.Subject = published
	kind, rest, _ := strings.Cut(rest, ".")
	m.now = max(m.now, msg.At) // log time never goes back
	m.warn()
	m.reap()
	switch kind {
	case "write":
		_, target, _ := strings.Cut(rest, ".")
		collection, token, ok := strings.Cut(target, ".")
		if !ok || strings.Contains(token, ".") {
			if m.set.Shards > 1 {
				target = fmt.Sprintf("shard.%d.%s", m.set.Shard, target)
			}
			m.reject(msg, nil, msg.Subject, target, wire.StatusBadRequest)
			break
		}
		if !subject.Own || wire.ShardOf(m.set.Shards, collection, token) != m.set.Shard {
			return fmt.Errorf("message %d: subject %s belongs to another shard", msg.Seq, msg.Subject)
		}
		m.write(msg, rest)
	case "config", "drop":
		if m.set.Shards > 1 {
			source := subject.Source(msg.Header)
			if source != m.configured+1 {
				break // it was applied, or one before it was not
			}
			m.configured = source
		}
		m.administer(msg, kind, rest)
	case "pause":
		m.pauseAll()
	case "tick":
	default:
		return fmt.Errorf("message %d: subject %s does not belong to the log", msg.Seq, msg.Subject)
	}
	return nil
}

// reap removes the documents that are due, and records their events.
func (m *Model) reap() {
	for _, e := range m.due(m.now) {
		delete(m.docs, e.Name)
		m.fates[e.Etag] = "expired at " + e.ExpiredAt.String()
		if m.collections[e.Collection].Paused {
			m.held[e.Name] = e
			continue
		}
		m.expired(e)
	}
}

// due returns the documents whose deadline has been reached at an instant.
func (m *Model) due(now wire.Time) []Expiry {
	var due []Expiry
	for _, name := range m.expire.until(now) {
		d, exists := m.docs[name]
		deadline, seconds, ok := m.deadline(name, d)
		if !exists || !ok {
			continue
		}
		m.expire.add(name, deadline)
		if deadline <= now {
			due = append(due, Expiry{
				Name: name, Document: d, Bare: m.collections[name.Collection].Bare, Seconds: seconds,
				ExpiredAt: max(deadline, m.collections[name.Collection].Since),
			})
		}
	}
	slices.SortFunc(due, func(a, b Expiry) int {
		return cmp.Or(cmp.Compare(a.ExpiredAt, b.ExpiredAt), cmp.Compare(a.Etag, b.Etag))
	})
	return due
}

// deadline returns when a document expires under the current configuration: not before it is written.
func (m *Model) deadline(name Name, d Document) (at wire.Time, seconds int32, ok bool) {
	byDefault, own := m.collections[name.Collection].lasting(), d.TTL
	if d.Took != 0 {
		own = d.Took
	}
	never := d.Begin + 1<<50 // later than any deadline
	switch {
	case byDefault == 0: // off
		return 0, 0, false
	case d.End != nil:
		at = *d.End
	case own > 0:
		at, seconds = d.Begin+wire.Time(own)*1000, own
	case own == 0 && d.Last == nil && d.Limit == nil && byDefault > 0:
		at, seconds = d.Begin+wire.Time(byDefault)*1000, byDefault
	case d.Last == nil && d.Limit == nil:
		return 0, 0, false
	default:
		at = never
	}
	for _, limit := range []*wire.Time{d.Last, d.Limit} {
		if limit != nil && *limit < at && (d.End == nil || limit == d.Limit) {
			at, seconds = *limit, 0
		}
	}
	return max(at, d.Ts), seconds, true
}

// lasting is the default that counts for a document that was written once: it lives no longer than Life.
func (c Collection) lasting() int32 {
	if c.Life != 0 && (c.Default == -1 || c.Default > c.Life) {
		return c.Life
	}
	return c.Default
}

// outlive limits a version that is written or renewed in place of another one, if that exists, by the collection's
// maxLife. asked is when the write says that the document was created, nil if it does not.
func (c Collection) outlive(next *Document, old Document, exists bool, asked *wire.Time, now wire.Time) {
	next.Born, next.Limit, next.Took = 0, nil, 0
	if c.Life == 0 {
		return
	}
	born := min(next.Ts, next.Begin)
	if asked != nil {
		born = min(born, *asked)
	}
	if exists {
		born = min(born, old.Ts, old.Begin)
		if old.Born != 0 {
			born = min(born, old.Born)
		}
	}
	inherits := next.TTL == 0 && next.End == nil && next.Last == nil
	if born == next.Begin && next.End == nil && next.Last == nil && next.TTL >= 0 && next.TTL <= c.Life {
		return
	}
	if inherits {
		next.Took = c.Default
	}
	limit := max(born+wire.Time(c.Life)*1000, now)
	next.Born, next.Limit = born, &limit
}

// Live is a document that can be read.
type Live struct {
	Document
	ExpiresAt *wire.Time // nil if it never expires
}

// Live returns the documents that must be readable at an instant, if the log grows no further.
func (m *Model) Live(at wire.Time) map[Name]Live {
	live := map[Name]Live{}
	for name, d := range m.docs {
		deadline, _, ok := m.deadline(name, d)
		switch {
		case !ok:
			live[name] = Live{Document: d}
		case deadline > max(at, m.now):
			live[name] = Live{Document: d, ExpiresAt: &deadline}
		}
	}
	return live
}

// exists reports whether a collection exists.
func (m *Model) exists(collection string) bool { return m.open || m.collections[collection].Etag != 0 }

// Config returns a collection's configuration.
func (m *Model) Config(collection string) wire.Config {
	c := m.collections[collection]
	config := wire.Config{IndexingMode: wire.Consistent, Etag: c.Etag, MinTTL: c.Min, MaxTTL: c.Max,
		WarnBefore: c.WarnBefore, MaxLife: c.Life, SlideOnRead: c.Slides, Changes: c.Changes, Paused: c.Paused}
	if len(c.Indexes) > 0 {
		config.Indexes = c.Indexes
	}
	if c.Bare {
		config.EventBody = new(bool)
	}
	if c.Default != 0 {
		config.DefaultTTL = &c.Default
	}
	switch {
	case c.NoIndex:
		config.IndexingMode = wire.NoIndex
	case c.Lazy:
		config.IndexingMode = wire.Lazy
	}
	return config
}

// Names returns every document that a message addressed, in order.
func (m *Model) Names() []Name {
	return slices.SortedFunc(maps.Keys(m.names), func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.ID, b.ID))
	})
}

// Collections returns every collection that was ever written to or is configured, in order.
func (m *Model) Collections() []string {
	seen := map[string]bool{}
	for n := range m.names {
		seen[n.Collection] = true
	}
	for c := range m.collections {
		seen[c] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// Forget drops the outcomes and what explains the past, for a caller that compares as it goes along.
func (m *Model) Forget() {
	empty := NewModel(m.set)
	m.Outcomes, m.fates, m.outputs, m.notices, m.names = empty.Outcomes, empty.fates, empty.outputs, empty.notices,
		empty.names
}

// reject records a rejection, with any of the codes.
func (m *Model) reject(msg Message, name *Name, subject, target string, codes ...int) {
	m.Outcomes[msg.Seq] = wire.Outcome{Status: codes[0]}
	if header(msg, "Lapse-Slide") != "" && !slices.Contains(codes, wire.StatusBadRequest) {
		return // lapse has appended it, and the document was changed or is gone since
	}
	m.Rejections = append(m.Rejections, Rejection{
		Seq: msg.Seq, Codes: codes, Subject: subject, Target: string(m.set.Prefix.Rejected(target)), Body: msg.Data,
		Trace: trace(msg), Name: name,
	})
	if name != nil {
		m.outputs[*name] = append(m.outputs[*name], rejectionOf(msg.Seq))
	}
}
