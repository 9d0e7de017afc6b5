package fold

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Version is a document at some point of a step. Body is nil where it is the stored body,
// and was not read, and where patches have made it and nobody has needed its bytes yet.
type Version struct {
	Header store.Header
	Body   []byte

	document *value  // which the patches of the step change; nil before the first
	patch    *object // that is still to be merged into document; nil if there is none
}

// body is the body; nil where it is the stored body, and was not read.
func (v *Version) body() []byte {
	if v.Body == nil && v.document != nil {
		v.Body = v.document.append(make([]byte, 0, v.document.size()))
	}
	return v.Body
}

// Slot is what a step knows of a document: the stored version, and the present one.
type Slot struct {
	Key    Key
	Stored *store.Header // nil if there is none
	Now    *Version      // nil if there is none, or no longer

	was     *Version  // the stored one
	indexed *indexing // nil until the step needs it
}

// Catalog knows the collections of a shard.
type Catalog interface {
	Config(collection string) store.Config
	Generations(collection string) []string // old ones, the oldest first
	// AllExist reports whether every collection exists, also one that is not configured.
	AllExist() bool
	// Inboxes are the beginnings of the subjects to which outcomes may go. If they are not known, all may be.
	Inboxes() (inboxes []string, known bool)
	// Nearest is the name of the configured collection that is nearest to one that is not; "" if none is near.
	Nearest(collection string) string
	// Making are the slots of a collection whose property indexes are being made.
	Making(collection string) []int
	// Unwarned are the warnings of a version that are due by an instant and not published.
	Unwarned(key Key, clock ttlrules.Clock, by int64) []Warning
}

// Decision is what follows from applying messages to documents. It depends on the
// arguments of New and on the messages alone.
type Decision struct {
	limits    Limits
	catalog   Catalog
	docs      map[Key]*Slot
	order     []*Slot // in which the messages first named the documents
	Watermark int64   // log time

	Outputs    []Output
	Outcomes   []Outcome
	Rejections []Rejection
	Expired    int // documents
	Warned     int // times

	whole       map[Key]bool            // documents that messages need with their bodies
	banded      map[string]store.Config // the collections that get a band of their index
	outputBytes int                     // in the documents of outputs
	parsed      int                     // bytes that patches have parsed
	largest     int                     // of these, the bytes of the largest document
	entries     int                     // of property indexes that messages change
}

// Limits bound the outputs, beside the rules.
type Limits struct {
	Log     events.Source
	MaxBody int // of a document
}

// New makes a decision that begins at a watermark.
func New(l Limits, catalog Catalog, watermark int64) *Decision {
	return &Decision{limits: l, catalog: catalog, docs: make(map[Key]*Slot), Watermark: watermark}
}

// Slot is the place of a document in the decision.
func (d *Decision) Slot(key Key) *Slot {
	s, ok := d.docs[key]
	if !ok {
		s = &Slot{Key: key}
		d.docs[key] = s
		d.order = append(d.order, s)
	}
	return s
}

// NamesDocuments reports whether a message has named a document.
func (d *Decision) NamesDocuments() bool { return len(d.order) > 0 }

// Work is what applying a message does that may take long, for people: it merges a patch into a large document.
// It is empty for any other message.
func (d *Decision) Work(m *Message) string {
	s := d.docs[Key{Collection: m.Collection, ID: m.ID}]
	if m.Kind != Write || m.Op != wire.Patch || s == nil || s.Now == nil {
		return ""
	}
	size := len(s.Now.Body)
	if s.Now.document != nil {
		size = s.Now.document.size()
	}
	if size < large {
		return ""
	}
	return fmt.Sprintf("merging patches into %s/%s, a document of %.1f MB", m.Collection, wire.EscapeID(m.ID),
		float64(size)/1e6)
}

// Apply applies a message that is not a configuration or a drop. It reports false, and has done nothing, if the history
// of the collection has to be settled first, once nothing in it is due: see [ttlrules.History.Admits].
func (d *Decision) Apply(m *Message) bool {
	m.CheckReply(d.catalog)
	if m.Kind == Write {
		return d.write(m)
	}
	d.Watermark = max(d.Watermark, m.Time)
	if m.Kind == Malformed && m.Rejected != nil {
		d.Reject(m, m.Rejected)
	}
	return true
}

// write applies a write. Where it finds an expired version, the event of that comes first,
// whatever the result of the write.
func (d *Decision) write(m *Message) bool {
	at := max(d.Watermark, m.Time)
	config := d.catalog.Config(m.Collection)
	s := d.Slot(Key{Collection: m.Collection, ID: m.ID})
	live := s.Now
	if live != nil && config.History.Expired(live.Header.Clock(), at) {
		live = nil
	}
	next, refused := d.next(m, live, config, at)
	if next != nil && config.Crowded(next.Header.Clock()) {
		next, refused = nil, Refuse(wire.StatusConflict, "collection %s is paused, and its defaultTtl was changed "+
			"at the very instant that is the deadline of this write: send it again.", m.Collection)
	}
	if next != nil && !d.admit(m.Collection, config, next) {
		return false
	}
	d.Watermark = at
	var replaces uint64
	if refused == nil {
		replaces = m.Seq
	}
	for _, generation := range d.catalog.Generations(m.Collection) {
		d.expireIn(d.Slot(Key{Collection: generation, ID: m.ID}), d.catalog.Config(generation), replaces)
	}
	d.expireIn(s, config, replaces)
	indexes := len(config.Indexes) > 0
	if refused != nil {
		if indexes && s.Now == nil {
			d.countEntries(s, m, config)
		}
		d.Reject(m, refused)
		return true
	}
	if live != nil {
		d.leaves(s.Key, live, at)
	}
	if next != nil && next.patch != nil {
		next.document.merge(next.patch, false)
		next.patch = nil
	}
	s.Now = next
	if indexes {
		d.countEntries(s, m, config)
	}
	if config.Changes && (!m.Slide || tells(live.Header, next.Header, config, at)) {
		d.changed(m, live, next, config)
	}
	o := wire.Outcome{Status: wire.StatusOK, Ts: wire.Time(at), Warning: warning(m, config, at)}
	switch {
	case next == nil:
		o = wire.Outcome{Status: wire.StatusNoContent, Ts: wire.Time(at)}
	case live == nil:
		o.Status = wire.StatusCreated
	}
	if next != nil {
		o.Etag, o.Ts = wire.Etag(next.Header.Etag), wire.Time(next.Header.Ts)
		if o.ExpiresAt = expiresAt(next.Header, config); o.ExpiresAt == nil && m.ReplyTo != "" && m.Target != "" &&
			o.Warning == "" {
			o.Warning = undelivered(m)
		}
		if indexes && m.ReplyTo != "" && o.Warning == "" {
			o.Warning = s.leftOut(m, config)
		}
	}
	d.done(m, o)
	return true
}

// Full reports whether the step has to end: its outputs have so many bytes, or its patches have parsed so many beside
// one document. A patch and a touch are short, and their documents are not. All patches of the one document that is
// largest are merged in a step, as they parse it once. Or it changes so many entries of property indexes. The next
// message finds a new band in the configuration.
func (d *Decision) Full() bool {
	return d.outputBytes >= BatchBytes || d.parsed-d.largest >= parseBytes || d.entries >= entriesAtOnce ||
		d.banded != nil
}

// admit finds the place of a version in the index. It reports false if there is none until the history is settled.
func (d *Decision) admit(collection string, config store.Config, v *Version) bool {
	in, band, ok := config.Admit(v.Header.Clock())
	if len(in.Bands) > len(config.Bands) {
		if d.banded == nil {
			d.banded = make(map[string]store.Config)
		}
		d.banded[collection] = in
	}
	v.Header.Band = band
	return ok
}

// Banded are the configurations of the collections that get a band of their index.
func (d *Decision) Banded() (all []store.ConfigChange) {
	for collection, config := range d.banded {
		all = append(all, store.ConfigChange{Collection: collection, Config: &config})
	}
	return all
}

// expiresAt is when a version expires that is written now; nil if it never does.
func expiresAt(h store.Header, config store.Config) *wire.Time {
	deadline, expires := h.Clock().Deadline(config.History.Current())
	if !expires {
		return nil
	}
	at := wire.Time(max(deadline, h.Ts))
	return &at
}

// next is the version that a write leaves at an instant, nil if it leaves none; or why the write
// takes no effect on the live version.
func (d *Decision) next(m *Message, live *Version, config store.Config, at int64) (*Version, *Refusal) {
	if r := d.check(m, live, config, at); r != nil {
		return nil, r
	}
	v := &Version{Body: m.Body}
	switch m.Op {
	case wire.Delete:
		return nil, nil
	case wire.Touch:
		v.Body, v.document = live.Body, live.document
	case wire.Patch:
		v = &Version{patch: d.parse(m, live), document: live.document}
		if size := v.document.merge(v.patch, true); size > d.limits.MaxBody {
			return nil, Refuse(wire.StatusTooLarge, "the patched document is %s long: use at most %s.", InBytes(size),
				InBytes(d.limits.MaxBody))
		}
	}
	v.Header = m.header(live, config, at)
	if m.Slide {
		return v, checkSlide(live.Header, v.Header, config)
	}
	if r := checkLimited(m, live, v.Header, config); r != nil {
		return nil, r
	}
	return v, nil
}

// parse parses a patch, and of the live version what the patch names and is not parsed yet.
func (d *Decision) parse(m *Message, live *Version) (patch *object) {
	patch = parse(m.Body, nil, true)
	if live.document == nil {
		live.document = &value{raw: live.Body}
	}
	parsed := live.document.open(patch)
	d.parsed += len(m.Body) + parsed
	d.largest = max(d.largest, parsed)
	return patch
}

// expireIn expires the version in a slot, if it is expired at the watermark. While its collection is paused, it stays
// unless the message with the sequence replaces takes its place: that is the cause of its event then.
func (d *Decision) expireIn(s *Slot, config store.Config, replaces uint64) {
	if s.Now == nil {
		return
	}
	x, ok := config.History.ExpiredAt(s.Now.Header.Clock())
	if !ok || x.At > d.Watermark {
		return
	}
	at, seq, held := config.Cause(x)
	if held {
		if replaces == 0 {
			return
		}
		at, seq = d.Watermark, replaces
	}
	d.expire(s.Key, s.Now, x, Output{At: at, Seq: seq})
	s.Now = nil
}

// check returns why a write takes no effect on the live version (nil if there is none). Its order is that of the
// contract: first the message and the configuration, then whether the document exists, then its etag.
func (d *Decision) check(m *Message, live *Version, config store.Config, at int64) *Refusal {
	if m.Rejected != nil {
		return m.Rejected
	}
	if r := d.exists(m, config); r != nil {
		return r
	}
	if r := checkClock(m, config, at); r != nil {
		return r
	}
	if r := undeliverable(m, config); r != nil {
		return r
	}
	switch {
	case m.Op == wire.Create && live != nil:
		return Refuse(wire.StatusConflict, "the document exists already: use another id, or upsert or replace it.")
	case m.Op != wire.Create && m.Op != wire.Upsert && live == nil:
		return Refuse(wire.StatusNotFound, "there is no such document, or it has expired: a %s needs one that is "+
			"there.", m.Op)
	case !m.IfMatch.Set:
		return nil
	case live == nil:
		return Refuse(wire.StatusPreconditionFailed, "there is no such document, or it has expired, and header %s "+
			"needs one that is there: leave the header out to create it.", wire.HeaderIfMatch)
	case m.IfMatch.Etag != 0 && m.IfMatch.Etag != wire.Etag(live.Header.Etag):
		return Refuse(wire.StatusPreconditionFailed, "the document's etag is %d, and header %s is %s: read the "+
			"document again, and use the etag that it has.", live.Header.Etag, wire.HeaderIfMatch, m.IfMatch.Etag)
	}
	return nil
}

// warning is what a write that takes effect does not do, although its author may think so; empty if
// there is nothing of the kind. A ttl of -1 is no reason: the document never expires, as it says.
func warning(m *Message, config store.Config, at int64) string {
	invalid := cmp.Or(m.TTLErr, m.Clock.inRange(at))
	switch {
	case m.ReplyTo == "" || config.History.Current() != ttlrules.Off:
		return ""
	case invalid != nil:
		return fmt.Sprintf("%v The document was written all the same, because TTL is off in collection %s, and it "+
			"will not expire.", invalid, m.Collection)
	case m.TTL <= 0 && m.Clock.ExpiresAt == nil && config.Etag == 0 && m.Op != wire.Delete:
		return fmt.Sprintf("collection %s is not configured: its TTL is off, so no document in it expires: %s.",
			m.Collection, turnOn(m.Collection, config))
	case m.TTL <= 0 && m.Clock.ExpiresAt == nil:
		return ""
	}
	return fmt.Sprintf("TTL is off in collection %s, so this document will not expire: %s.", m.Collection,
		turnOn(m.Collection, config))
}

// turnOn says how to turn TTL on in a collection.
func turnOn(collection string, config store.Config) string {
	first := ""
	if config.NoIndex {
		first = fmt.Sprintf("set its indexingMode to %q first (lapse config %s --indexing %s), then ", wire.Consistent,
			collection, wire.Consistent)
	}
	return fmt.Sprintf("%sset its defaultTtl to -1 or to a number of seconds (lapse config %s --default-ttl -1)", first,
		collection)
}

// Changes are the changes of the documents that the messages name, and the removal of documents that are due.
func (d *Decision) Changes(due []*DueDocument) []store.CollectionChanges {
	var out []store.CollectionChanges
	at := make(map[string]int)
	for _, s := range d.order {
		change := store.Change{ID: s.Key.ID, Old: s.Stored}
		switch {
		case s.Now == nil && s.Stored == nil:
			continue
		case s.Now == nil:
		case s.Stored != nil && s.Now.Header == *s.Stored:
			continue
		default:
			change.New, change.Body = &s.Now.Header, s.Now.body()
		}
		i, ok := at[s.Key.Collection]
		if !ok {
			i = len(out)
			at[s.Key.Collection] = i
			out = append(out, store.CollectionChanges{Collection: s.Key.Collection})
		}
		out[i].Changes = append(out[i].Changes, change)
		d.index(&out[i], s, change)
	}
	for _, doc := range due {
		i := slices.IndexFunc(out, func(c store.CollectionChanges) bool { return c.Collection == doc.Key.Collection })
		if i < 0 {
			i = len(out)
			out = append(out, store.CollectionChanges{Collection: doc.Key.Collection})
		}
		out[i].Changes = append(out[i].Changes, store.Change{ID: doc.Key.ID, Old: &doc.Header})
		d.unindex(&out[i], doc)
	}
	return out
}
