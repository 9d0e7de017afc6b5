package forward

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// The headers of a dead letter, beside those of its event.
const (
	headerReason  = "Lapse-Dead-Reason"
	headerSubject = "Lapse-Dead-Subject" // of the event in its stream
	headerSeq     = "Lapse-Dead-Seq"     // of the event in its stream
)

// deadLetters are the dead letters of a consumer, in a stream of their own. The stream keeps them as long as
// the stream of events keeps events.
type deadLetters struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	prefix  wire.Prefix
	durable string
	timeout time.Duration
}

// exchangeWithin limits an exchange with the stream.
const exchangeWithin = 5 * time.Second

// openDead looks the stream up, or creates it.
func openDead(ctx context.Context, c *client.Client, prefix wire.Prefix, durable string) (*deadLetters, error) {
	js, err := jetstream.New(c.Conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	stream, err := js.Stream(ctx, prefix.DeadStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		events, eventsErr := js.Stream(ctx, prefix.EventsStream())
		if eventsErr != nil {
			return nil, fmt.Errorf("look up the stream %s: %w", prefix.EventsStream(), eventsErr)
		}
		like := events.CachedInfo().Config
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: prefix.DeadStream(), Description: "events that lapse forward has given up", Subjects: []string{prefix.Dead("*",
				"*")},
			MaxAge: like.MaxAge, Replicas: like.Replicas, Storage: like.Storage,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process has just created it, otherwise
			stream, err = js.Stream(ctx, prefix.DeadStream())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up or create the stream %s: %w", prefix.DeadStream(), err)
	}
	return &deadLetters{js, stream, prefix, durable, exchangeWithin}, nil
}

// subject is that of the dead letters about the document of an event. It has a hash, as ids may be long.
func (d *deadLetters) subject(e event) string {
	_, collection, _ := strings.Cut(e.header.Get("ce-source"), "/collections/")
	document := sha256.Sum256([]byte(collection + "/" + e.header.Get("ce-subject")))
	return d.prefix.Dead(d.durable, base64.RawURLEncoding.EncodeToString(document[:12]))
}

// store stores a dead letter behind the last one about the document; if only is set, only if there is one. It is stored
// once, however often the process repeats that: the stream takes it only if the last letter is still the one that was
// looked up. A message id would need a secret, or a client that guessed it could keep letters out.
func (d *deadLetters) store(
	ctx context.Context, e event, msg *client.Ordered, why error, only bool,
) (stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var behind uint64
	switch last, err := d.stream.GetLastMsgForSubject(ctx, d.subject(e)); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		if only {
			return false, nil
		}
	case err != nil:
		return false, err
	case (event{last.Header, last.Data}).id() == e.id():
		return true, nil
	default:
		behind = last.Sequence
		if found, err := d.holds(ctx, e, msg, last); found || err != nil {
			return found, err
		}
	}
	_, err = d.js.PublishMsg(ctx, d.letter(e, msg, why), jetstream.WithExpectLastSequencePerSubject(behind))
	return err == nil, err
}

// holds reports whether there is a dead letter of an event before the last one about its document. There can only be
// one if the last one is of a later event: another process has given this one up meanwhile, and then parked that one.
func (d *deadLetters) holds(
	ctx context.Context, e event, msg *client.Ordered, last *jetstream.RawStreamMsg,
) (found bool, err error) {
	if of, err := strconv.ParseUint(last.Header.Get(headerSeq), 10, 64); err == nil && of <= msg.Seq {
		return false, nil
	}
	for next := uint64(1); next < last.Sequence; {
		letter, err := d.stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(d.subject(e)))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return false, nil
		case err != nil:
			return false, err
		case (event{letter.Header, letter.Data}).id() == e.id():
			return true, nil
		}
		next = letter.Sequence + 1
	}
	return false, nil
}

// letter is the dead letter of an event.
func (d *deadLetters) letter(e event, msg *client.Ordered, why error) *nats.Msg {
	header := nats.Header{}
	for name, values := range e.header { // there may be none
		if !strings.HasPrefix(name, "Nats-") { // those are about its stream
			header[name] = values
		}
	}
	header[headerReason] = []string{strings.Join(strings.Fields(why.Error()), " ")}
	header[headerSubject], header[headerSeq] = []string{msg.Subject}, []string{strconv.FormatUint(msg.Seq, 10)}
	return &nats.Msg{Subject: d.subject(e), Header: header, Data: e.data}
}

// Letter is a dead letter.
type Letter struct {
	Seq    uint64          `json:"seq"` // in the stream of dead letters
	ID     string          `json:"id"`  // the webhook-id
	At     time.Time       `json:"at"`  // when it was given up
	Reason string          `json:"reason"`
	Event  json.RawMessage `json:"event"` // as a CloudEvent

	Text string `json:"-"` // in place of the event, for people: see [Letter.WithoutEvent]

	event    event
	document string // names it
}

func newLetter(msg *jetstream.RawStreamMsg) (l Letter, err error) {
	l = Letter{Seq: msg.Sequence, At: msg.Time, Reason: msg.Header.Get(headerReason), event: event{msg.Header, msg.Data},
		document: msg.Subject}
	l.ID = l.event.id()
	l.Event, err = l.event.structured()
	return l, err
}

// each calls f with each dead letter, the oldest first, until f returns an error.
func (d *deadLetters) each(ctx context.Context, f func(Letter) error) error {
	for next := uint64(1); ; {
		within, cancel := context.WithTimeout(ctx, d.timeout)
		msg, err := d.stream.GetMsg(within, next, jetstream.WithGetMsgSubject(d.prefix.Dead(d.durable, "*")))
		cancel()
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
		l, err := newLetter(msg)
		if err != nil {
			return err
		}
		if err := f(l); err != nil {
			return err
		}
		next = msg.Sequence + 1
	}
}

// ListDead calls f with each dead letter of a consumer, the oldest first.
func ListDead(ctx context.Context, c *client.Client, prefix wire.Prefix, durable string, f func(Letter) error) error {
	d, err := openDead(ctx, c, prefix, durable)
	if err != nil {
		return err
	}
	return d.each(ctx, f)
}

// Resend posts each dead letter once, and removes those that the receiver takes. Behind one that it does not take,
// those about the same document are left.
func Resend(ctx context.Context, c *client.Client, prefix wire.Prefix, opts Options) (sent, left int, err error) {
	f, err := open(ctx, c, prefix, opts)
	if err != nil {
		return 0, 0, err
	}
	defer f.http.CloseIdleConnections()
	return f.resend(ctx)
}

// resend is [Resend], by a forwarding that may be under way.
func (f *forwarding) resend(ctx context.Context) (sent, left int, err error) {
	stays := make(map[string]bool)
	err = f.dead.each(ctx, func(l Letter) error {
		if stays[l.document] {
			left++
			return nil
		}
		v, err := f.try(ctx, l.event)
		switch {
		case err != nil:
			return err
		case errors.Is(v.why, ErrGone):
			return v.why
		case v.why != nil:
			stays[l.document] = true
			left++
			return nil
		}
		sent++
		return f.dead.remove(ctx, l.Seq)
	})
	return sent, left, err
}

// remove removes a dead letter. Another process may have removed it meanwhile.
func (d *deadLetters) remove(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	err := d.stream.DeleteMsg(ctx, seq)
	if err == nil {
		return nil
	}
	if _, missing := d.stream.GetMsg(ctx, seq); errors.Is(missing, jetstream.ErrMsgNotFound) {
		return nil
	}
	return fmt.Errorf("remove dead letter %d: %w", seq, err)
}

// Dead is the dead letters of a durable name.
type Dead struct {
	Durable string
	Count   uint64
	Last    []Letter // the newest first
}

const (
	lettersFirst = 32      // sequences that are looked at first; each further look is at twice as many
	lettersMost  = 4096    // sequences that are looked at in all
	lettersBytes = 4 << 20 // of letters that are read in all
)

// CountDead counts the dead letters of each durable name, by name, and reads the last ones of all names together, n at
// most; it looks only at the end of the stream, so it may find fewer. There are none if there is no stream.
func CountDead(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix, n int) ([]Dead, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	stream, err := js.Stream(ctx, prefix.DeadStream())
	var info *jetstream.StreamInfo
	if err == nil {
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(prefix.Dead("*", "*")))
	}
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up the stream %s: %w", prefix.DeadStream(), err)
	}
	byName := make(map[string]*Dead)
	var names []string
	of := func(subject string) *Dead {
		name := durableOf(prefix, subject)
		if byName[name] == nil {
			byName[name], names = &Dead{Durable: name}, append(names, name)
		}
		return byName[name]
	}
	for subject, count := range info.State.Subjects {
		of(subject).Count += count
	}
	letters, err := lastLetters(ctx, stream, prefix, info.State, n)
	if err != nil {
		return nil, err
	}
	for _, l := range letters {
		if d := byName[durableOf(prefix, l.document)]; d != nil { // otherwise it has come since
			d.Last = append(d.Last, l)
		}
	}
	slices.Sort(names)
	all := make([]Dead, len(names))
	for i, name := range names {
		all[i] = *byName[name]
	}
	return all, nil
}

// durableOf is the durable name in the subject of a dead letter.
func durableOf(prefix wire.Prefix, subject string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(subject, string(prefix)+".dead."), ".")
	return name
}

// lastLetters reads the last letters of a stream, the newest first, n at most.
func lastLetters(
	ctx context.Context, stream jetstream.Stream, prefix wire.Prefix, state jetstream.StreamState, n int,
) (all []Letter, err error) {
	size, end := 0, state.LastSeq // all behind it was looked at
	for look := uint64(lettersFirst); len(all) < n && size < lettersBytes && end >= state.FirstSeq && end > 0; look *= 2 {
		begin := max(state.FirstSeq, end-min(end, look)+1)
		if state.LastSeq-begin >= lettersMost {
			break
		}
		var found []Letter
		for next := begin; next <= end && size < lettersBytes; {
			msg, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(prefix.Dead("*", "*")))
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Sequence > end {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read the dead letters: %w", err)
			}
			l, err := newLetter(msg)
			if err != nil {
				return nil, err
			}
			size += len(msg.Data)
			found, next = append(found, l), msg.Sequence+1
		}
		slices.Reverse(found)
		all, end = append(all, found...), begin-1
	}
	return all[:min(n, len(all))], nil
}

// WithoutEvent is the letter with a text of the event's body in place of the event.
func (l Letter) WithoutEvent(text func(body []byte) string) Letter {
	l.Text, l.Event, l.event = strings.Clone(text(l.event.data)), nil, event{}
	return l
}

// ErrNoForwarder: no process forwards under the durable name, so none has the URL and the secret of the receiver.
var ErrNoForwarder = errors.New("no lapse forward runs under this name")

// AskAgain asks a process that runs [Run] under a durable name to post its dead letters again. The process begins
// at once, and takes the letters away that the receiver takes. account is where it runs; empty for that of nc.
func AskAgain(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, account, durable string) error {
	if account != "" {
		durable = account + "." + durable
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	_, err := nc.RequestWithContext(ctx, prefix.Resend(durable), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: start it, or run it with --resend", ErrNoForwarder)
	case err != nil:
		return fmt.Errorf("ask the forwarder: %w", err)
	}
	return nil
}

// answerAgain posts the dead letters again whenever somebody asks for it, one time after the other, until end is
// called. Of several processes under the name one answers. All requests that come while it posts letters lead to one
// more time: by then the receiver may take what it has just refused.
func (f *forwarding) answerAgain(ctx context.Context, c *client.Client, prefix wire.Prefix) (end func(), err error) {
	asked := make(chan struct{}, 1)
	var under sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	sub, err := c.Conn().QueueSubscribe(prefix.Resend(f.opts.Messages.Durable), "forward", func(msg *nats.Msg) {
		select {
		case asked <- struct{}{}:
		default: // the next time has not begun
		}
		_ = msg.Respond(nil) // the one who has asked sees the letters go
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("answer requests to post dead letters again: %w", err)
	}
	under.Go(func() {
		for {
			select {
			case <-asked:
				f.again(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		if err := sub.Unsubscribe(); err == nil {
			// Until the server has taken the subscription away, it delivers requests here, and nobody answers them.
			_ = c.Conn().FlushTimeout(exchangeWithin)
		}
		cancel()
		under.Wait()
	}, nil
}

// again posts the dead letters again, and tells the user what has come of it.
func (f *forwarding) again(ctx context.Context) {
	f.notice("posting the dead letters again, because somebody has asked for it")
	sent, left, err := f.resend(ctx)
	if err != nil {
		f.notice("the dead letters could not be posted again: %s", err)
		return
	}
	f.notice("the receiver took %d dead letters; %d are left", sent, left)
}
