package oracle

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Settings are what the log was created with.
type Settings struct {
	Prefix     wire.Prefix // wire.DefaultPrefix if empty
	Partitions int         // 16 if 0
	MaxBody    int         // the longest body that is taken; 1 MiB less 8 KiB if 0
}

// Name is what a document is found by.
type Name struct{ Collection, ID string }

func (n Name) String() string { return n.Collection + "/" + wire.EscapeID(n.ID) }

// Document is a version of a document.
type Document struct {
	Body   []byte
	Merged bool // Body is a merge's result: its value counts, not its bytes
	Etag   wire.Etag
	Ts     wire.Time
	TTL    int32 // its own, in seconds; -1 never, 0 none
	Trace  string
}

// Expiry is an expiry event that must exist.
type Expiry struct {
	Name
	Document
	Seconds   int32 // that counted
	ExpiredAt wire.Time
}

// ID is its ce-id.
func (e Expiry) ID() string { return e.Name.String() + "/" + e.Etag.String() }

// Rejection is a rejection that must exist.
type Rejection struct {
	Seq     uint64
	Codes   []int // any of these
	Subject string
	Target  string // subject of the rejection
	Body    []byte
	Name    *Name // of the document; nil if the subject does not say one
}

// output is one thing said about a document, for the order among them.
type output struct {
	expiry    string // ce-id, or
	rejection uint64 // sequence
}

// Collection is a collection's configuration.
type Collection struct {
	Default int32 // in seconds; -1 on without a default, 0 off
	Since   wire.Time
	NoIndex bool
}

// partition is what one partition has come to. It knows all collections.
type partition struct {
	docs        map[Name]Document
	collections map[string]Collection
	soonest     wire.Time // no document of it expires before
}

// Model is the state that a log leads to, and what had to be said on the way.
type Model struct {
	set        Settings
	seq        uint64    // applied up to here
	now        wire.Time // the greatest stamp up to here
	partitions []*partition

	Expiries   []Expiry
	Rejections []Rejection
	Outcomes   map[uint64]wire.Outcome // of every write, configuration and drop, by sequence
	names      map[Name]bool           // of every document that was ever written to
	fates      map[wire.Etag]string    // what became of each version, for the reader of a diff
	said       map[Name][]output
}

// NewModel is the model of an empty log.
func NewModel(set Settings) *Model {
	set.Prefix = cmp.Or(set.Prefix, wire.DefaultPrefix)
	set.Partitions = cmp.Or(set.Partitions, 16)
	set.MaxBody = cmp.Or(set.MaxBody, 1<<20-8<<10)
	m := &Model{
		set: set, now: math.MinInt64, Outcomes: map[uint64]wire.Outcome{}, names: map[Name]bool{},
		fates: map[wire.Etag]string{}, said: map[Name][]output{},
	}
	for range set.Partitions {
		m.partitions = append(m.partitions, &partition{
			soonest: math.MaxInt64, docs: map[Name]Document{}, collections: map[string]Collection{},
		})
	}
	return m
}

// Seq is the sequence of the last message that was applied.
func (m *Model) Seq() uint64 { return m.seq }

// Apply folds the next message of the log.
func (m *Model) Apply(msg Message) error {
	if msg.Seq != m.seq+1 {
		return fmt.Errorf("the log goes on with %d after %d", msg.Seq, m.seq)
	}
	m.seq = msg.Seq
	rest, ok := strings.CutPrefix(msg.Subject, string(m.set.Prefix)+".")
	if !ok {
		return fmt.Errorf("message %d: subject %s is not of the log", msg.Seq, msg.Subject)
	}
	kind, rest, _ := strings.Cut(rest, ".")
	m.advance(msg.At)
	switch kind {
	case "write":
		_, target, _ := strings.Cut(rest, ".")
		collection, token, ok := strings.Cut(target, ".")
		if !ok || strings.Contains(token, ".") {
			m.reject(msg, nil, msg.Subject, target, wire.StatusBadRequest)
			break
		}
		m.write(m.partitions[wire.PartitionOfToken(len(m.partitions), collection, token)], msg, rest)
	case "config", "drop":
		for i, p := range m.partitions {
			m.administer(p, msg, kind, rest, i == 0)
		}
	case "tick":
	default:
		return fmt.Errorf("message %d: subject %s is not of the log", msg.Seq, msg.Subject)
	}
	return nil
}

// advance moves time to a stamp, unless it is past it, and expires what is due, under
// the configuration as it is.
func (m *Model) advance(stamp wire.Time) {
	m.now = max(m.now, stamp)
	for _, p := range m.partitions {
		m.expire(p)
	}
}

// expire expires what is due in a partition.
func (m *Model) expire(p *partition) {
	for _, e := range p.due(m.now) {
		delete(p.docs, e.Name)
		m.Expiries = append(m.Expiries, e)
		m.said[e.Name] = append(m.said[e.Name], output{expiry: e.ID()})
		m.fates[e.Etag] = "expired at " + e.ExpiredAt.String()
	}
}

// due finds the documents whose deadline has been reached at an instant.
func (p *partition) due(now wire.Time) []Expiry {
	if now < p.soonest {
		return nil
	}
	var due []Expiry
	p.soonest = math.MaxInt64
	for name, d := range p.docs {
		deadline, seconds, ok := p.deadline(name, d)
		if !ok {
			continue
		}
		p.soonest = min(p.soonest, deadline)
		if deadline <= now {
			due = append(due, Expiry{
				Name: name, Document: d, Seconds: seconds,
				ExpiredAt: max(deadline, p.collections[name.Collection].Since),
			})
		}
	}
	slices.SortFunc(due, func(a, b Expiry) int {
		return cmp.Or(cmp.Compare(a.ExpiredAt, b.ExpiredAt), cmp.Compare(a.Etag, b.Etag))
	})
	return due
}

// deadline is when a document expires under the configuration as it is.
func (p *partition) deadline(name Name, d Document) (at wire.Time, seconds int32, ok bool) {
	byDefault := p.collections[name.Collection].Default
	switch {
	case byDefault == 0: // off
		return 0, 0, false
	case d.TTL != 0: // its own
		seconds = d.TTL
	default:
		seconds = byDefault
	}
	if seconds == -1 {
		return 0, 0, false
	}
	return d.Ts + wire.Time(seconds)*1000, seconds, true
}

// Live is a document that is there to be read.
type Live struct {
	Document
	ExpiresAt *wire.Time // nil if it never expires
}

// Live is what must be readable at an instant, if the log goes no further.
func (m *Model) Live(at wire.Time) map[Name]Live {
	live := map[Name]Live{}
	for _, p := range m.partitions {
		for name, d := range p.docs {
			deadline, _, ok := p.deadline(name, d)
			switch {
			case !ok:
				live[name] = Live{Document: d}
			case deadline > max(at, m.now):
				live[name] = Live{Document: d, ExpiresAt: &deadline}
			}
		}
	}
	return live
}

// Due are the expirations that have come by an instant without that the log
// has got there: a tick is missing, if the instant has passed.
func (m *Model) Due(at wire.Time) []Expiry {
	var due []Expiry
	for _, p := range m.partitions {
		due = append(due, p.due(max(at, m.now))...)
	}
	return due
}

// Config is a collection's configuration.
func (m *Model) Config(collection string) wire.Config {
	c := m.partitions[0].collections[collection]
	config := wire.Config{IndexingMode: wire.Consistent}
	if c.Default != 0 {
		config.DefaultTTL = &c.Default
	}
	if c.NoIndex {
		config.IndexingMode = wire.NoIndex
	}
	return config
}

// Names are all documents that were ever written to, in order.
func (m *Model) Names() []Name {
	names := make([]Name, 0, len(m.names))
	for n := range m.names {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.ID, b.ID))
	})
	return names
}

// Collections are the collections that were ever written to or configured, in order.
func (m *Model) Collections() []string {
	seen := map[string]bool{}
	for n := range m.names {
		seen[n.Collection] = true
	}
	for c := range m.partitions[0].collections {
		seen[c] = true
	}
	all := make([]string, 0, len(seen))
	for c := range seen {
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

// reject notes a rejection, with any of the codes.
func (m *Model) reject(msg Message, name *Name, subject, target string, codes ...int) {
	m.Rejections = append(m.Rejections, Rejection{
		Seq: msg.Seq, Codes: codes, Subject: subject, Target: string(m.set.Prefix.Rejected(target)), Body: msg.Data, Name: name,
	})
	if name != nil {
		m.said[*name] = append(m.said[*name], output{rejection: msg.Seq})
	}
	m.Outcomes[msg.Seq] = wire.Outcome{Status: codes[0]}
}
