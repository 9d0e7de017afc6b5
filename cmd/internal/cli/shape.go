package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/ndjson"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Shaped is the flags that say how the lines of another store become documents.
type Shaped struct {
	IDField      string      `name:"id-field" placeholder:"NAME"`
	ExpiresAt    string      `name:"expires-at-field" placeholder:"NAME"`
	ExpiresAfter *After      `name:"expires-after" placeholder:"NAME=TIME"`
	TimeUnit     ndjson.Unit `name:"time-unit" enum:",s,ms" default:"" placeholder:"UNIT"`
	SkipExpired  bool
	DropFields   []string `placeholder:"NAME,…"`
	Unwrap       string   `placeholder:"NAME"`
	DynamoDB     bool     `name:"dynamodb"`
	AsIs         bool
}

// After is a member with an instant, and how long after that the deadline is.
type After struct {
	Member string
	By     time.Duration
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *After) UnmarshalText(text []byte) (err error) {
	member, by, ok := strings.Cut(string(text), "=")
	if a.By, err = wire.ParseDuration(by); !ok || member == "" || err != nil || a.By <= 0 {
		return fmt.Errorf("%q is not valid: use the name of a member and a duration, such as createdAt=1h", text)
	}
	a.Member = member
	return nil
}

// shape is what the flags ask for.
func (s *Shaped) shape() (ndjson.Shape, error) {
	switch {
	case s.ExpiresAt != "" && s.ExpiresAfter != nil:
		return ndjson.Shape{}, output.Usagef("--expires-at-field and --expires-after contradict each other: leave one out")
	case s.Unwrap != "" && s.DynamoDB, s.AsIs && (s.DynamoDB || s.Unwrap != ""):
		return ndjson.Shape{}, output.Usagef("--unwrap, --dynamodb and --as-is contradict each other: use one")
	case slices.Contains(s.DropFields, ""):
		return ndjson.Shape{}, output.Usagef("--drop-fields has an empty name: use names of members, such as _id,expiresAt")
	}
	shape := ndjson.Shape{ID: s.IDField, ExpiresAt: s.ExpiresAt, Unit: s.TimeUnit, Drop: s.DropFields, Unwrap: s.Unwrap,
		DynamoDB: s.DynamoDB, AsIs: s.AsIs}
	if s.ExpiresAfter != nil {
		shape.After, shape.AfterBy = s.ExpiresAfter.Member, s.ExpiresAfter.By
	}
	return shape, nil
}

// Bounds of what an import reads before it knows whether the lines are in an envelope.
const (
	mostJudged      = 1000
	mostJudgedBytes = 8 << 20
)

// judge reads the first lines, until one does not look like an envelope of another program. If all do, it refuses
// them. It returns what it has read.
func (s *Shaped) judge(ctx context.Context, in <-chan line, from int) (read []line, err error) {
	if s.AsIs || s.Unwrap != "" || s.DynamoDB {
		return nil, nil
	}
	found, size := "", 0
	for len(read) < mostJudged && size < mostJudgedBytes {
		var l line
		var ok bool
		select {
		case l, ok = <-in:
		case <-ctx.Done():
		}
		if !ok {
			break
		}
		read = append(read, l)
		size += len(l.text)
		if l.err != nil || l.number < from {
			continue
		}
		envelope := ndjson.Envelope(l.text)
		if envelope == "" {
			return read, nil
		}
		if found == "" {
			found = envelope
		}
	}
	switch {
	case found == "" || ctx.Err() != nil:
		return read, nil
	case found == "Item":
		return nil, output.Usagef(`all lines look like {"Item":{…}}: nothing was stored. Add --dynamodb if they are an ` +
			`export of DynamoDB, --unwrap Item to store what is in Item, or --as-is to store the lines as they are`)
	}
	return nil, output.Usagef(`all lines look like an envelope with the document in its member %s: nothing was `+
		`stored. Add --unwrap %s to store what is in it, or --as-is to store the lines as they are`, found, found)
}

// leeway is how far the clock of this machine may be from that of NATS for a line to be left out.
const leeway = time.Minute

// isOver reports whether a document is over already, in a collection with a default, and is to be left out.
// Those that are over for less than a minute are left to lapse, whose clock counts. A deadline of another store is
// left out in any case: lapse refuses one that is over.
func (i *importing) isOver(r ndjson.Record, now time.Time) bool {
	if !i.SkipExpired && (r.Whole || r.Deadline == "") {
		return false
	}
	c := ttlrules.Clock{Absolute: millis(r.Deadline), NotAfter: millis(r.NotAfter), Ts: millis(r.Clock)}
	d := i.defaultTTL
	switch {
	case c.Absolute != 0 && !r.Whole:
		d = ttlrules.NoDefault // another store counts it
	case c.Absolute == 0 && c.Ts == 0:
		return false
	default:
		c.TTL = ownTTL(r.Document)
	}
	at, ok := c.Deadline(d)
	return ok && at <= now.Add(-leeway).UnixMilli()
}

// millis reads an instant of a record; 0 if there is none.
func millis(text string) int64 {
	at, err := wire.ParseInstant(text)
	if err != nil {
		return 0
	}
	return int64(at)
}

// ownTTL is the ttl of a document; Inherit if it has none that is valid.
func ownTTL(document []byte) ttlrules.TTL {
	members, err := ndjson.Members(document)
	if err != nil {
		return ttlrules.Inherit
	}
	ttl, _ := ttlrules.ParseTTL(members["ttl"])
	return ttl
}

// message is the message that writes the document of a line.
func (i *importing) message(r ndjson.Record, now time.Time) client.Message {
	m := client.Message{
		Subject: i.prefix.Write(i.Op, i.Name, r.ID), Body: r.Document, Target: r.Target, Traceparent: r.Traceparent,
		ExpiresAt: r.Deadline, NotAfter: r.NotAfter, Clock: r.HeaderClock(),
	}
	if millis(r.Clock) > now.UnixMilli() {
		m.Clock = "" // of a machine whose clock is ahead: it begins now
	}
	return m
}

// line is one line of an input without its end, or the reason why it cannot be read.
type line struct {
	number int // from 1
	text   []byte
	err    error
}

// lines sends the lines of an input that are not empty, until the input ends or ctx is
// done. A line of more than longest bytes comes as an error, and is not kept in memory.
// An error of the input itself comes last, with number 0.
func lines(ctx context.Context, r io.Reader, longest int) <-chan line {
	out := make(chan line)
	// A read of a terminal or a pipe cannot be interrupted: this goroutine may end only
	// with the process.
	go func() {
		defer close(out)
		in := ndjson.NewReader(r, longest)
		for {
			next, err := in.Next()
			l := line{number: next.Number, text: next.Text}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				l = line{err: err}
			case next.TooLong:
				l.err = fmt.Errorf("the line has %d bytes: use at most %d", next.Size, longest)
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out
}
