// Package observer sees everything that happens in the simulated world, and checks what must
// hold.
package observer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Observer knows what has happened so far. It checks after each effect on a server what must
// hold at every moment:
//
//   - H1 (G3): no event or rejection is stored twice.
//   - H2 (G3, S2): no event is stored before log time has reached its instant; so there is
//     none that the oracle does not require.
//   - H4 (G2, S10): no reader gets a version whose event is stored, unless Redis's clock was
//     set back in the last seconds (an owner knows that clock for as long), or Redis has lost
//     commits and not got them back.
//   - H5 (G2): no reader gets a version whose deadline the later of Redis's clock and the
//     watermark has reached.
//   - H6 (G1, G7): a reader gets, once the log is applied, what the oracle has,
//     or an error; never something else. It gets only errors while what Redis has lost is
//     rebuilt, and never a 404 out of ignorance.
//   - H7 (S3, S9): a version that has expired leaves Redis only once its event is stored.
//   - H8 (S1, S2): the shard has not applied more than the log has, and has no later log time, nor
//     one that leads all clocks by more than it may.
//   - H9 (S8): the shard is not cleared where the log does not reach back to rebuild it.
//   - H11: a client gets no outcome but that of the oracle.
//   - H17 (contract of warnBefore): no warning is stored after the event of its version. H1 and H2 hold
//     for warnings too.
//   - H18 (contract of slideOnRead): a touch that lapse appends for a read renews the version that was
//     read, or nothing.
//   - H20 (contract of indexes): the entries of each property index are those of the stored documents, unless it is
//
// being
//
//	made, when it may lack some; no other index has entries.
//
// At the end, when nothing goes wrong any more:
//
//   - H3 (G4): the events and rejections of one document are in the order of the log.
//   - H10 (G1, G3): all events, rejections and documents are those of the oracle, and no read
//     fails, within a minute of the world's time.
//   - H12 (G7): lapse refuses to go on only if the world gave it a reason.
//   - H13 (G12): lapse goes on only if nothing remembers a message of a client that the log has lost; see
//     ends.go.
//   - H14 (G12): a shard that has such messages is not cleared.
type Observer struct {
	servers Servers
	broken  error  // the first thing that must not be
	reason  string // why lapse may refuse to go on; "" if it may not
	faults  map[string]int

	// As of the log.
	model   *oracle.Model
	created time.Time
	log     []oracle.Message
	expired map[string]oracle.Expiry
	owed    map[string]oracle.Expiry // without an event so far
	names   names
	replies map[string][]uint64 // messages, by the subject of their outcome

	events []oracle.Message
	stored map[string]bool                    // ids of events, warnings and rejections
	slid   map[oracle.Name]map[wire.Etag]bool // versions that a reader got, and that are to slide
	losses losses
	ends   ends
	second second
	values values
}

// Servers are what an observer looks at.
type Servers struct {
	NATS       *natsmodel.Server
	Redis      *redismodel.Server
	NATSClock  func() time.Time
	RedisClock func() time.Time
	First      *Observer // of the region that this one follows; nil if it follows none
}

// The names of the streams.
const (
	Log         = "LAPSE_LOG"
	Events      = "LAPSE_EVENTS"
	Checkpoints = "KV_LAPSE_CHECKPOINTS"
)

// losses are what Redis has lost and not got back.
type losses struct {
	unsure  time.Time // until then an owner may go by a clock of Redis that was set back
	had     uint64    // offset before Redis lost commits
	damaged bool      // the shard lacks something, until it is cleared
	rebuilt uint64    // offset up to which the shard has to be rebuilt, since it was cleared

	truncated time.Time // when the log was
}

// justNow is how long lapse may not have seen that the log was truncated.
const justNow = 15 * time.Second

// names are the documents that the log has named so far.
type names struct {
	written map[oracle.Name]uint64    // sequence of the last write
	control map[string]uint64         // by collection: that of the last configuration or drop
	expired map[oracle.Name]wire.Time // the last instant at which a version expired
	etag    map[oracle.Name]wire.Etag // of the last version
}

// New makes an observer of servers on which nothing is stored.
func New(s Servers) *Observer {
	h := &Observer{servers: s, stored: map[string]bool{}, slid: map[oracle.Name]map[wire.Etag]bool{},
		faults: map[string]int{}, values: values{}}
	h.forget()
	return h
}

// Broken is the first thing that must not be; nil if there is none.
func (h *Observer) Broken() error { return h.broken }

// Faults counts the steps by kind.
func (h *Observer) Faults() map[string]int { return h.faults }

// Messages is the number of messages in the log.
func (h *Observer) Messages() int { return len(h.log) }

// Reason is the step after which lapse may refuse to go on; "" if there was none.
func (h *Observer) Reason() string { return h.reason }

// Etag is the etag of the last version of a document.
func (h *Observer) Etag(collection, id string) wire.Etag {
	return h.names.etag[oracle.Name{Collection: collection, ID: id}]
}

// ConfigEtag is the etag of a collection's configuration.
func (h *Observer) ConfigEtag(collection string) wire.Etag { return h.model.Config(collection).Etag }

// forget begins anew with an empty log, and with what the stream of events has.
func (h *Observer) forget() {
	h.log, h.expired, h.owed = nil, map[string]oracle.Expiry{}, map[string]oracle.Expiry{}
	h.replies = map[string][]uint64{}
	h.names = names{map[oracle.Name]uint64{}, map[string]uint64{}, map[oracle.Name]wire.Time{},
		map[oracle.Name]wire.Etag{}}
	h.model = oracle.NewModel(oracle.Settings{Created: wire.Time(h.created.UnixMilli())})
}

// Fail notes that something is as it must not be.
func (h *Observer) Fail(rule, format string, args ...any) {
	if h.broken == nil {
		h.broken = fmt.Errorf("%s: %w", rule, fmt.Errorf(format, args...))
	}
}

// Step notes a step of the plan.
func (h *Observer) Step(s plan.Step) {
	h.faults[s.Verb]++
	h.Met(happening(s))
	switch s.Verb {
	case "log-truncate":
		h.losses.truncated = time.Now()
	case "power-loss", "leader-change":
		for stream := range s.Lost() {
			h.faults[s.Verb+" of "+stream]++
		}
	}
	if s.Lasts() {
		h.reason = s.Verb
	}
	if h.ends.note(s) && h.reason == "" && s.Lost()["log"] > 0 {
		h.reason = s.Verb
	}
}

// Look looks at what is new in the streams.
func (h *Observer) Look() {
	if first := h.servers.First; first != nil && h.created.IsZero() {
		h.created = first.created
		h.forget()
	}
	if s := h.servers.NATS.Stream(Log); s != nil {
		h.lookAtLog(s)
		if h.servers.First != nil {
			h.lookAtMirror(s)
		}
	}
	if s := h.servers.NATS.Stream(Events); s != nil {
		h.lookAtEvents(s)
	}
}

func (h *Observer) lookAtLog(s *natsmodel.Stream) {
	last := uint64(0)
	if n := len(h.log); n > 0 {
		last = h.log[n-1].Seq
	}
	if !h.identity(s).Equal(h.created) || s.LastSeq() < last {
		h.refold(s)
	} else if s.LastSeq() > last {
		h.fold(after(s.Messages(), last))
	}
}

// after returns the messages after a sequence.
func after(messages []natsmodel.Stored, seq uint64) []natsmodel.Stored {
	i := len(messages)
	for i > 0 && messages[i-1].Seq > seq {
		i--
	}
	return messages[i:]
}

// refold begins the model anew, because the log is another one, or has lost its end.
func (h *Observer) refold(s *natsmodel.Stream) {
	keep := h.log
	if !h.identity(s).Equal(h.created) {
		keep = nil
	}
	h.noteLost(s)
	h.created = h.identity(s)
	h.forget()
	for _, m := range keep {
		if m.Seq <= s.LastSeq() {
			h.apply(m)
		}
	}
	last := uint64(0)
	if n := len(h.log); n > 0 {
		last = h.log[n-1].Seq
	}
	h.fold(after(s.Messages(), last))
}

func (h *Observer) fold(messages []natsmodel.Stored) {
	for _, m := range messages {
		h.apply(message(m))
	}
}

func message(m natsmodel.Stored) oracle.Message {
	return oracle.Message{Seq: m.Seq, Subject: m.Subject, Header: m.Header, Data: m.Data,
		At: wire.Time(m.At.UnixMilli())}
}

func (h *Observer) apply(m oracle.Message) {
	h.log = append(h.log, m)
	if err := h.model.Apply(m); err != nil && !h.second.holes {
		h.Fail("oracle", "%w", err)
	}
	for _, e := range h.model.Expiries[len(h.expired):] {
		h.expired[e.ID()] = e
		h.names.expired[e.Name] = e.ExpiredAt
		if !h.stored[h.source()+e.ID()] {
			h.owed[e.ID()] = e
		}
	}
	if reply := m.Header.Get(wire.HeaderReplyTo); reply != "" {
		h.replies[reply] = append(h.replies[reply], m.Seq)
	}
	parts := strings.SplitN(strings.TrimPrefix(m.Subject, string(wire.DefaultPrefix)+"."), ".", 4)
	switch kind := parts[0]; {
	case kind == "write" && len(parts) == 4:
		name := oracle.Name{Collection: parts[2], ID: parts[3]}
		h.names.written[name] = m.Seq
		if o := h.model.Outcomes[m.Seq]; o.Etag != 0 {
			h.slide(m, name)
			h.names.etag[name] = o.Etag
		}
	case kind == "config" || kind == "drop":
		h.names.control[parts[1]] = m.Seq
	}
}

// source tells the events of one log from those of another.
func (h *Observer) source() string { return fmt.Sprint(h.created.UnixMilli(), " ") }

func (h *Observer) lookAtEvents(s *natsmodel.Stream) {
	last := uint64(0)
	if n := len(h.events); n > 0 {
		last = h.events[n-1].Seq
	}
	last = max(last, h.second.events) // of which some do not count any more
	if s.LastSeq() < last {
		h.loseEvents(s)
		last = s.LastSeq()
	}
	for _, m := range after(s.Messages(), last) {
		h.lookAtEvent(message(m))
	}
}

// warning is what the ce-id of a warning has between that of the version's event and the rest.
const warning = "/expiring/"

// output is the id of a message of the stream of events, and its kind; "" if it is neither an event, nor a
// due message, nor a warning, nor a rejection. A due message has the id of the event in whose place it is.
func output(m oracle.Message) (id, kind string) {
	switch kind, _, _ = strings.Cut(strings.TrimPrefix(m.Subject, string(wire.DefaultPrefix)+"."), "."); kind {
	case "expired", "expiring", "due":
		id = m.Header.Get("ce-id")
	case "changed":
		id = m.Header.Get("ce-id")
	case "rejected":
		id = "rejected/" + m.Header.Get(wire.HeaderSeq)
	}
	return id, kind
}

func (h *Observer) lookAtEvent(m oracle.Message) {
	// The oracle compares stamps. NATS's clock may have been set back, but log time counts.
	m.At = max(m.At, h.model.LogTime())
	m = h.mirroredEvent(m)
	h.events = append(h.events, m)
	id, kind := output(m)
	if id == "" {
		return
	}
	source := h.source()
	if h.stored[source+id] && h.reason == "" {
		h.Fail("H1", "%s is stored twice", id)
	}
	h.stored[source+id] = true
	if kind == "rejected" || kind == "changed" {
		return
	}
	if _, ok := h.owed[id]; !ok && h.reason == "" && !h.follows() { // events may be ahead of the log there
		// The last message of the log itself may have made the document expire.
		if d := h.model.CompareEvents([]oracle.Message{m}, h.model.LogTime()); slices.ContainsFunc(d,
			func(f oracle.Finding) bool { return f.Kind == oracle.Unexpected || f.Kind == oracle.Early }) {
			h.Fail("H2", "%s is stored at log time %s: %s", id, h.model.LogTime(), d)
		}
	}
	if version, _, warns := strings.Cut(id, warning); warns {
		if h.stored[source+version] && h.reason == "" && h.faults["leader-change"] == 0 {
			h.Fail("H17", "%s is stored after the event of its version", id)
		}
		return
	}
	delete(h.owed, id)
	name, etag := m.Header.Get("ce-subject"), id[strings.LastIndexByte(id, '/')+1:]
	collection, _, _ := strings.Cut(id, "/")
	if !h.follows() && h.read(collection, name).String() == etag && h.sure() {
		h.Fail("H4", "%s is stored, and a reader gets that version", id)
	}
}

// sure reports whether readers cannot be behind the events.
func (h *Observer) sure() bool {
	state, _ := h.servers.Redis.State()
	return time.Now().After(h.losses.unsure) && state.Offset >= h.losses.had
}

// Loses notes that Redis is about to lose commits: all of them, or it goes back to an earlier
// state, which readers may see until the owner has.
func (h *Observer) Loses(all bool) {
	state, _ := h.servers.Redis.State()
	h.losses.had = max(h.losses.had, state.Offset)
	if h.losses.rebuilt = 0; all {
		h.losses.rebuilt = h.losses.had
	}
}

// read is the etag of the version that a reader gets; 0 if it gets none.
func (h *Observer) read(collection, id string) wire.Etag {
	d, err := h.servers.Redis.Get(collection, id)
	if err != nil {
		return 0
	}
	return wire.Etag(d.Header.Etag)
}

// Committing checks a commit that is about to arrive at Redis.
func (h *Observer) Committing(pr store.Progress) {
	// What is ahead of Redis's clock may not have been before that was set back.
	if ahead := time.Until(time.UnixMilli(pr.Watermark)); ahead > processor.DefaultMaxClockLead &&
		h.faults["redis-clock"] == 0 {
		h.Fail("H8", "a commit at a log time that is %s ahead of all clocks", ahead)
	}
	if last := h.servers.NATS.Stream(Log); last != nil && h.reason == "" {
		if pr.Offset > last.LastSeq() {
			h.Fail("H8", "a commit at offset %d, and the log ends at %d", pr.Offset, last.LastSeq())
		}
		if wire.Time(pr.Watermark) > h.model.LogTime() {
			h.Fail("H8", "a commit at log time %s, and that of the log is %s", wire.Time(pr.Watermark),
				h.model.LogTime())
		}
	}
}

// Committed checks the shard after a commit.
func (h *Observer) Committed() {
	h.checkIndexes()
	if len(h.owed) == 0 || h.reason != "" {
		return
	}
	state, ok := h.servers.Redis.State()
	if !ok || state.Rebuild != 0 || h.losses.damaged {
		return
	}
	var there map[string]bool
	for id, e := range h.owed {
		if uint64(e.Etag) > state.Offset {
			continue
		}
		if there == nil {
			there = map[string]bool{}
			for _, d := range h.servers.Redis.Documents() {
				there[fmt.Sprint(d.ID, "/", d.Header.Etag)] = true
			}
		}
		if !there[fmt.Sprint(e.Name.ID, "/", e.Etag)] {
			h.Fail("H7", "%s has left Redis, and its event is not stored", id)
		}
	}
}

// Clear clears the shard, and checks that it can be rebuilt.
func (h *Observer) Clear(next store.State, do func() error) error {
	before, _ := h.servers.Redis.State()
	if h.ends.holds {
		h.Fail("H14", "the shard is cleared, and nothing else has messages that the log has lost")
	}
	if err := do(); err != nil {
		return err
	}
	h.losses.damaged = false
	h.losses.rebuilt = max(h.losses.had, before.Offset)
	if s := h.servers.NATS.Stream(Log); s != nil && s.FirstSeq() > next.Offset+1 &&
		time.Since(h.losses.truncated) > justNow {
		h.Fail("H9", "the shard is cleared to begin at offset %d, and the log begins at %d", next.Offset, s.FirstSeq())
	}
	return nil
}

// Owes reports whether an event is not published that log time has reached.
func (h *Observer) Owes() bool { return len(h.owed) > 0 }

// Compare compares what is published with the oracle. A stream that takes only small messages
// gets events without their documents. What a leader lacked may be published again behind what comes
// later, because nobody has heard of the loss before that.
func (h *Observer) Compare(at wire.Time) oracle.Diff {
	published := h.published()
	excused := h.excused(published, at)
	published = slices.DeleteFunc(published, func(m oracle.Message) bool { id, _ := output(m); return excused[id] })
	d := h.model.CompareEvents(published, at)
	return slices.DeleteFunc(d, func(f oracle.Finding) bool {
		for id := range excused {
			if f.Kind == oracle.Missing && strings.Contains(f.Text, id) {
				return true
			}
		}
		return f.Kind == oracle.Wrong && h.faults["events-size"] > 0 || f.Kind == oracle.Order &&
			h.faults["leader-change"] > 0
	})
}

// published are the events, due messages, warnings and rejections, without the fences between them.
func (h *Observer) published() []oracle.Message {
	return slices.DeleteFunc(slices.Clone(h.events), func(m oracle.Message) bool {
		_, kind := output(m)
		return kind != "expired" && kind != "expiring" && kind != "due" && kind != "changed" && kind != "rejected"
	})
}

// Received checks an outcome that a client gets.
func (h *Observer) Received(m natsmodel.Sent) {
	if h.reason != "" || strings.HasPrefix(m.Subject, "$") {
		return
	}
	var got wire.Outcome
	if err := json.Unmarshal(m.Data, &got); err != nil {
		h.Fail("H11", "the outcome %s: %w", m.Data, err)
	}
	for _, seq := range h.replies[m.Subject] {
		if want := h.model.Outcomes[seq]; got.Status == want.Status && got.Etag == want.Etag &&
			(got.Warning != "") == (want.Warning != "") {
			return
		}
		for _, r := range h.model.Rejections {
			if r.Seq == seq && slices.Contains(r.Codes, got.Status) {
				return
			}
		}
	}
	h.Fail("H11", "a client gets the outcome %+v of messages %v", got, h.replies[m.Subject])
}
