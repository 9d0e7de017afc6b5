package client

import (
	"cmp"
	"context"
	"crypto/rand"
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
	// Changes: changes too, and the due messages of the collection. Unless it begins with Since or After, it begins with
	// the documents that there are (Notification.Document, and then Current). It needs a collection.
	Changes bool
	After   *uint64    // begin behind this sequence of the stream
	Since   *time.Time // begin with what the stream stored from then on; only what is new if nil
	// Watching, if set, is called once the watch cannot miss anything new.
	Watching func(subjects []string)
}

// Notification is a message of the stream of events, or a document that was there at the beginning, or Current.
type Notification struct {
	Seq uint64    // in the stream of events
	At  time.Time // when the stream stored it
	wire.Notification
	Document *wire.Document // it has no Seq
	Current  bool           // all documents of the beginning have come; Seq is where the changes begin
}

// Rejection is a message that lapse did not apply.
type Rejection = wire.Rejection

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
	subjects := c.watched(opts)
	ctx, stop := c.l.Permitted(ctx, consumerAPI)
	defer stop()
	stream, err := eventsStream(ctx, c.l, subjects[0])
	if err != nil {
		return c.ended(ctx, err)
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: c.filters(subjects)}
	opts.begin(&config, stream.CachedInfo())
	var state *State
	if opts.Changes && opts.Since == nil && !ReachesBack(opts.After, stream.CachedInfo().State) {
		if state, err = c.sendState(ctx, opts, f); err != nil || ctx.Err() != nil {
			return c.ended(ctx, err)
		}
		config.OptStartSeq = state.After + 1
	}
	begun := func() {
		if opts.Watching != nil {
			opts.Watching(subjects)
		}
	}
	return c.readOn(ctx, stream, config, subjects[0], begun, func(msg *jetstream.RawStreamMsg) error {
		n, err := c.notification(msg)
		if err != nil {
			return err
		}
		if state != nil && n.Seq > state.End {
			state = nil // the rest is from after it
		}
		if state.Has(n.Seq, n.About) || !opts.selects(n) {
			return nil
		}
		return f(n)
	})
}

// Tail calls begun with the last sequence of the stream of events, and then f with each message for clients behind it,
// in the order of the stream and without a gap, until ctx is done (then it returns nil) or f returns an error.
func (c *Client) Tail(ctx context.Context, begun func(last uint64), f func(*jetstream.RawStreamMsg) error) error {
	ctx, stop := c.l.Permitted(ctx, consumerAPI)
	defer stop()
	var all []string
	for _, kind := range []wire.Kind{wire.KindExpired, wire.KindDue, wire.KindExpiring, wire.KindRejected,
		wire.KindChanged} {
		all = append(all, c.subjects(kind, "", "")...)
	}
	stream, err := eventsStream(ctx, c.l, all[0])
	if err != nil {
		return c.ended(ctx, err)
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: all}
	WatchOptions{}.begin(&config, stream.CachedInfo())
	return c.readOn(ctx, stream, config, all[0], func() { begun(config.OptStartSeq - 1) }, f)
}

// readOn calls begun once it has a consumer of a stream, and then f with each message, until ctx is done or f or the
// reading fails. subject is one that the stream stores. At the end it deletes the consumer, if it can reach the server.
func (c *Client) readOn(
	ctx context.Context, stream jetstream.Stream, config jetstream.OrderedConsumerConfig, subject string,
	begun func(), f func(*jetstream.RawStreamMsg) error,
) error {
	name := stream.CachedInfo().Config.Name
	config.NamePrefix, config.InactiveThreshold = "watch_"+rand.Text(), consumerIdle
	making, cancel := c.l.Within(ctx, streamInfoAPI+name)
	defer cancel()
	consumer, err := stream.OrderedConsumer(making, config)
	if err != nil {
		return cmp.Or(denial(ctx), c.l.StreamError("consume the stream "+name, subject, err))
	}
	// Otherwise the server sends 500 messages ahead, however large they are.
	messages, err := consumer.Messages(jetstream.PullMaxBytes(int(max(leastAhead, 2*c.l.NC.MaxPayload()))))
	if err != nil {
		c.deleteConsumers(name, config.NamePrefix, consumer)
		return c.l.StreamError("consume the stream "+name, subject, err)
	}
	begun()
	err = c.follow(ctx, messages, f)
	// Stop waits while the library replaces the consumer, which may take as long as the server
	// is away: so readOn does not wait for it without limit.
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

// ReachesBack reports whether the stream of events still has all behind a sequence, if there is one.
func ReachesBack(after *uint64, state jetstream.StreamState) bool {
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
func (c *Client) follow(
	ctx context.Context, messages jetstream.MessagesContext, f func(*jetstream.RawStreamMsg) error,
) error {
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
			raw, _, err := rawMessage(msg)
			if err == nil {
				err = f(raw)
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

// anyTarget selects all targets.
const anyTarget = ">"

// watched lists the subjects to follow.
func (c *Client) watched(opts WatchOptions) []string {
	subjects := c.subjects(wire.KindExpired, opts.Collection, opts.ID)
	if opts.Due != "" {
		subjects = []string{c.l.Prefix.Due(opts.Due)}
	}
	if opts.Warnings {
		subjects = append(subjects, c.subjects(wire.KindExpiring, opts.Collection, opts.ID)...)
	}
	if opts.Rejected {
		subjects = append(subjects, c.subjects(wire.KindRejected, opts.Collection, opts.ID)...)
	}
	if opts.Changes {
		if opts.Due == "" {
			subjects = append(subjects, c.l.Prefix.Due(anyTarget)) // documents with a target expire too
		}
		subjects = append(subjects, c.subjects(wire.KindChanged, opts.Collection, opts.ID)...)
		if opts.Collection != "" && opts.ID != "" {
			subjects = append(subjects, c.l.Prefix.Dropped(opts.Collection))
		}
	}
	return subjects
}

// subjects are those of a kind of messages, of a collection and of a document, if they are not empty.
func (c *Client) subjects(kind wire.Kind, collection, id string) []string {
	all := string(c.l.Prefix) + "." + string(kind) + "."
	switch {
	case collection == "":
		return []string{all + ">"}
	case id != "":
		return []string{all + collection + "." + wire.EscapeID(id)}
	case kind == wire.KindRejected,
		kind == wire.KindChanged: // the subject of a rejected configuration, and of a drop, ends with the collection
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
	if d := n.Due; d != nil && (!wire.MatchTarget(cmp.Or(opts.Due, anyTarget), d.Target) || opts.Collection != "" &&
		d.Collection != opts.Collection) {
		return false
	}
	return opts.ID == "" || n.id() == opts.ID || n.isDrop()
}

// id is that of the document; "" if it has none.
func (n Notification) id() string {
	if n.Rejected == nil {
		return n.ID
	}
	id, err := wire.UnescapeID(n.Rejected.Subject[strings.LastIndexByte(n.Rejected.Subject, '.')+1:])
	if err != nil {
		return ""
	}
	return id
}

// isDrop reports whether it is about the end of the collection.
func (n Notification) isDrop() bool { return n.Changed != nil && n.Changed.Type == wire.TypeDropped }

// nouns are what the texts of errors call messages.
var nouns = map[wire.Kind]string{wire.KindDue: "message", wire.KindExpiring: "warning", wire.KindRejected: "rejection",
	wire.KindChanged: "change"}

// rawMessage is a delivered message as its stream has it.
func rawMessage(msg jetstream.Msg) (*jetstream.RawStreamMsg, *jetstream.MsgMetadata, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, nil, fmt.Errorf("message on %s: %w", msg.Subject(), err)
	}
	return &jetstream.RawStreamMsg{
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp, Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(),
	}, meta, nil
}

// notification reads a message of the stream of events.
func (c *Client) notification(msg *jetstream.RawStreamMsg) (n Notification, err error) {
	n = Notification{Seq: msg.Sequence, At: msg.Time}
	n.Notification, err = wire.ParseEvent(c.l.Prefix, msg.Subject, msg.Header, msg.Data)
	if err != nil {
		return n, fmt.Errorf("%s %d on %s is not valid: %w", cmp.Or(nouns[n.Kind], "event"), n.Seq, msg.Subject, err)
	}
	return n, nil
}
