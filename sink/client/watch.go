package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// leastAhead is how many bytes a watch lets the server send ahead.
const leastAhead = 1 << 20

// WatchOptions say what to follow.
type WatchOptions struct {
	Collection string // all if empty
	ID         string // all of the collection if empty
	Warnings   bool   // warnings too
	Rejected   bool   // rejections too
	// Due, if not empty, follows due messages in place of expiry events: those to the targets that it
	// selects, as the target of [Collection.OnDue] does.
	Due string
	// Changes: changes too, and the due messages of the collection. Unless it begins with Since or After, it begins with the documents that there
	// are (Notification.Document, and then Current). It needs a collection.
	Changes bool
	After   *uint64    // begin behind this sequence of the stream
	Since   *time.Time // begin with what the stream stored from then on; only what is new if nil
	// Watching, if set, is called once the watch cannot miss anything new.
	Watching func(subjects []string)
}

// Notification is an expiry event, a due message, a warning, a rejection or a change, or a document that was
// there at the beginning: one of these is set, or Current.
type Notification struct {
	Seq      uint64    // in the stream of events
	At       time.Time // when the stream stored it
	Expired  *wire.Event
	Due      *wire.Due
	Expiring *wire.Expiring
	Rejected *Rejection
	Changed  *Changed
	Document *wire.Document // it has no Seq
	Current  bool           // all documents of the beginning have come; Seq is where the changes begin
}

// Rejection is a message that lapse did not apply.
type Rejection struct {
	Code      int    `json:"code"`
	Error     string `json:"error"`
	Subject   string `json:"subject"` // of the message
	Seq       uint64 `json:"seq"`     // of the message in the log
	Body      string `json:"body"`
	Truncated int    `json:"truncated,omitempty"` // the message's bytes, if Body is not all of them
}

const (
	// consumerIdle is how long the server keeps the consumer of a watch that could not delete
	// it. A watch that has no connection for longer gets a new consumer.
	consumerIdle = time.Minute
	// deleteWithin limits the time to delete the consumer when a watch ends.
	deleteWithin = 2 * time.Second
)

// Watch calls f with each notification, in the order of the stream and without a gap, until
// ctx is done (then it returns nil) or f returns an error. At the end it deletes its
// consumer, if it can reach the server.
func (c *Client) Watch(ctx context.Context, opts WatchOptions, f func(Notification) error) error {
	if opts.Due != "" {
		if err := wire.CheckTargetFilter(opts.Due); err != nil {
			return invalid("%s", err)
		}
	}
	if opts.Changes && opts.Collection == "" {
		return invalid("changes are those of a collection: name one")
	}
	subjects, name := c.watched(opts), c.l.Prefix.EventsStream()
	ctx, stop := c.l.Permitted(ctx, consumerAPI)
	defer stop()
	within, cancel := c.l.Within(ctx, streamInfoAPI+name)
	defer cancel()
	var stream jetstream.Stream
	err := c.l.Ask(within, func(ctx context.Context) (err error) {
		stream, err = c.l.JS.Stream(ctx, name)
		return err
	})
	switch {
	case err != nil && denial(within) != nil:
		return denial(within)
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return c.l.StreamError("look up the stream "+name, subjects[0], err)
	}
	config := jetstream.OrderedConsumerConfig{
		FilterSubjects:    c.filters(subjects),
		NamePrefix:        "watch_" + rand.Text(),
		InactiveThreshold: consumerIdle,
	}
	opts.begin(&config, stream.CachedInfo())
	var state *State
	if opts.Changes && opts.Since == nil && !reachesBack(opts.After, stream.CachedInfo().State) {
		if state, err = c.sendState(ctx, opts, f); err != nil || ctx.Err() != nil {
			return c.ended(ctx, err)
		}
		config.OptStartSeq = state.After + 1
	}
	making, cancel := c.l.Within(ctx, streamInfoAPI+name) // the documents may have taken long
	defer cancel()
	consumer, err := stream.OrderedConsumer(making, config)
	if err != nil {
		return cmp.Or(denial(ctx), c.l.StreamError("consume the stream "+name, subjects[0], err))
	}
	// Otherwise the server sends 500 messages ahead, however large they are.
	messages, err := consumer.Messages(jetstream.PullMaxBytes(int(max(leastAhead, 2*c.l.NC.MaxPayload()))))
	if err != nil {
		c.deleteConsumers(name, config.NamePrefix, consumer)
		return c.l.StreamError("consume the stream "+name, subjects[0], err)
	}
	if opts.Watching != nil {
		opts.Watching(subjects)
	}
	err = c.follow(ctx, messages, func(n Notification) error {
		if state != nil && n.Seq > state.End {
			state = nil // the rest is from after it
		}
		if n.Rejected == nil && state.Has(n.Seq, n.about()) || !opts.selects(n) {
			return nil
		}
		return f(n)
	})
	// Stop waits while the library replaces the consumer, which may take as long as the server
	// is away: so Watch does not wait for it without limit.
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		messages.Stop()
		c.deleteConsumers(name, config.NamePrefix, consumer)
	}()
	select {
	case <-stopped:
	case <-time.After(deleteWithin):
	}
	return err
}

// sendState calls f with each document that there is now, and at last says that these are all.
func (c *Client) sendState(ctx context.Context, opts WatchOptions, f func(Notification) error) (*State, error) {
	state, err := c.Documents(ctx, opts.Collection, opts.ID, func(page []wire.Document, _ int64) error {
		for i := range page {
			if err := f(Notification{Document: &page[i]}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &state, f(Notification{Seq: state.After, Current: true})
}

// begin sets where in the stream a consumer begins.
func (opts WatchOptions) begin(config *jetstream.OrderedConsumerConfig, info *jetstream.StreamInfo) {
	// DeliverNewPolicy would lose messages: if none came before a reconnect, it skips those that came during
	// it.
	config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
	switch {
	case opts.After != nil:
		config.OptStartSeq = *opts.After + 1
	case opts.Since == nil:
		config.OptStartSeq = info.State.LastSeq + 1
	case info.State.Msgs == 0, opts.Since.Before(info.State.FirstTime): // a mirror is younger than its messages
		config.DeliverPolicy = jetstream.DeliverAllPolicy // the server cannot take times before 1678
	default:
		config.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		config.OptStartTime = opts.Since
	}
}

// reachesBack reports whether the stream still has all behind a sequence.
func reachesBack(after *uint64, state jetstream.StreamState) bool {
	return after != nil && *after+1 >= state.FirstSeq && *after <= state.LastSeq
}

// ended is the error of a watch whose beginning failed; nil if its context is done.
func (c *Client) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return denial(ctx)
	}
	return err
}

// follow calls f with each message, until ctx is done or f or the reading fails.
func (c *Client) follow(ctx context.Context, messages jetstream.MessagesContext, f func(Notification) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	received := make(chan jetstream.Msg)
	failed := make(chan error, 1)
	go func() {
		for {
			msg, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				failed <- err
				return
			}
			select {
			case received <- msg:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case msg := <-received:
			n, err := c.notification(msg)
			if err == nil {
				err = f(n)
			}
			if err != nil {
				return err
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return denial(ctx)
			}
			return fmt.Errorf("follow the stream %s: %w", c.l.Prefix.EventsStream(), err)
		case <-ctx.Done():
			// The library may be waiting for the server, so follow does not wait for it.
			return denial(ctx)
		}
	}
}

// deleteConsumers deletes the last few consumers of an ordered consumer. After a reconnect
// the library makes a new one and deletes the former in the background, perhaps later.
func (c *Client) deleteConsumers(stream, prefix string, consumer jetstream.Consumer) {
	const last = 3
	info := consumer.CachedInfo()
	if info == nil || c.l.IsLost() {
		return // the server deletes it after consumerIdle
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteWithin)
	defer cancel()
	serial, _ := strconv.Atoi(strings.TrimPrefix(info.Name, prefix+"_"))
	for n := serial; n > max(0, serial-last); n-- {
		_ = c.l.JS.DeleteConsumer(ctx, stream, prefix+"_"+strconv.Itoa(n)) // the library may have deleted it
	}
}

// The kinds of messages, as in their subjects.
const (
	expired  = "expired"
	due      = "due"
	expiring = "expiring"
	rejected = "rejected"
	changed  = "changed"
)

// anyTarget selects all targets.
const anyTarget = ">"

// watched lists the subjects to follow.
func (c *Client) watched(opts WatchOptions) []string {
	subjects := c.subjects(expired, opts.Collection, opts.ID)
	if opts.Due != "" {
		subjects = []string{c.l.Prefix.Due(opts.Due)}
	}
	if opts.Warnings {
		subjects = append(subjects, c.subjects(expiring, opts.Collection, opts.ID)...)
	}
	if opts.Rejected {
		subjects = append(subjects, c.subjects(rejected, opts.Collection, opts.ID)...)
	}
	if opts.Changes {
		if opts.Due == "" {
			subjects = append(subjects, c.l.Prefix.Due(anyTarget)) // documents with a target expire too
		}
		subjects = append(subjects, c.subjects(changed, opts.Collection, opts.ID)...)
		if opts.Collection != "" && opts.ID != "" {
			subjects = append(subjects, c.l.Prefix.Dropped(opts.Collection))
		}
	}
	return subjects
}

// subjects are those of a kind of messages, of a collection and of a document, if they are not empty.
func (c *Client) subjects(kind, collection, id string) []string {
	all := string(c.l.Prefix) + "." + kind + "."
	switch {
	case collection == "":
		return []string{all + ">"}
	case id != "":
		return []string{all + collection + "." + wire.EscapeID(id)}
	case kind == rejected, kind == changed: // the subject of a rejected configuration, and of a drop, ends with the collection
		return []string{all + collection, all + collection + ".>"}
	}
	return []string{all + collection + ".>"}
}

// filters are the subjects under which the stream stores what is published on some subjects.
func (c *Client) filters(subjects []string) []string {
	all := slices.Clone(subjects)
	for i, s := range subjects {
		if target, ok := strings.CutPrefix(s, c.l.Prefix.Due("")); ok {
			all[i] = c.l.Prefix.StoredDue(target)
		} else if !strings.HasSuffix(s, ">") {
			all[i] = c.l.Prefix.Stored(s)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// selects reports whether a notification is one to follow. Its subject may say less than the options.
func (opts WatchOptions) selects(n Notification) bool {
	if d := n.Due; d != nil && (!wire.MatchTarget(cmp.Or(opts.Due, anyTarget), d.Target) || opts.Collection != "" && d.Collection != opts.Collection) {
		return false
	}
	return opts.ID == "" || n.id() == opts.ID || n.isDrop()
}

// id is that of the document; "" if it has none.
func (n Notification) id() string {
	switch {
	case n.Expired != nil:
		return n.Expired.ID
	case n.Due != nil:
		return n.Due.ID
	case n.Expiring != nil:
		return n.Expiring.ID
	case n.Changed != nil:
		return n.Changed.ID
	}
	id, err := wire.UnescapeID(n.Rejected.Subject[strings.LastIndexByte(n.Rejected.Subject, '.')+1:])
	if err != nil {
		return ""
	}
	return id
}

// isDrop reports whether it is about the end of the collection.
func (n Notification) isDrop() bool { return n.Changed != nil && n.Changed.Type == wire.TypeDropped }

func (c *Client) notification(msg jetstream.Msg) (Notification, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Notification{}, fmt.Errorf("message on %s: %w", msg.Subject(), err)
	}
	n := Notification{Seq: meta.Sequence.Stream, At: meta.Timestamp}
	kind, _, _ := strings.Cut(strings.TrimPrefix(msg.Subject(), string(c.l.Prefix)+"."), ".")
	what := "event"
	switch kind {
	case rejected:
		what = "rejection"
		n.Rejected, err = readRejection(msg)
	case changed:
		what = "change"
		n.Changed, err = readChanged(msg)
	case expiring:
		what, n.Expiring = "warning", new(wire.Expiring)
		err = json.Unmarshal(msg.Data(), n.Expiring)
	case due:
		var d wire.Due
		d, err = wire.ReadDue(msg.Headers(), msg.Data())
		what, n.Due = "message", &d
	default:
		n.Expired = new(wire.Event)
		err = json.Unmarshal(msg.Data(), n.Expired)
	}
	if err != nil {
		return Notification{}, fmt.Errorf("%s %d on %s is not valid: %w", what, meta.Sequence.Stream, msg.Subject(), err)
	}
	return n, nil
}

func readRejection(msg jetstream.Msg) (*Rejection, error) {
	header := msg.Headers()
	r := &Rejection{
		Error:   header.Get(wire.HeaderError),
		Subject: header.Get(wire.HeaderSubject),
		Body:    string(msg.Data()),
	}
	var truncatedErr error
	if text := header.Get(wire.HeaderTruncated); text != "" {
		r.Truncated, truncatedErr = strconv.Atoi(text)
	}
	var codeErr, seqErr error
	r.Code, codeErr = strconv.Atoi(header.Get(wire.HeaderCode))
	r.Seq, seqErr = strconv.ParseUint(header.Get(wire.HeaderSeq), 10, 64)
	return r, errors.Join(truncatedErr, codeErr, seqErr)
}
