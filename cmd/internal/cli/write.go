package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Publishing is the flags of every message to the log.
type Publishing struct {
	MsgID *Header `name:"msg-id" placeholder:"ID"`
}

// Writing is the flags of every write.
type Writing struct {
	IfMatch     *Etag   `placeholder:"ETAG"`
	Traceparent *Header `placeholder:"TRACE"`
	Publishing
}

// Body is the argument with what a command writes.
type Body struct {
	JSON string `arg:"" optional:"" name:"json" default:"-"`
}

func (b Body) read(ctx context.Context, streams output.Streams) ([]byte, error) {
	if b.JSON == "-" {
		streams.NoticeTerminal("the JSON object")
		return readAll(ctx, streams.In)
	}
	if path, ok := strings.CutPrefix(b.JSON, "@"); ok {
		return os.ReadFile(path)
	}
	return []byte(b.JSON), nil
}

// readAll reads to the end, or until ctx is done.
func readAll(ctx context.Context, r io.Reader) (data []byte, err error) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		data, err = io.ReadAll(r)
	}()
	select {
	case <-read:
		return data, err
	case <-ctx.Done(): // the read of a terminal cannot be interrupted: it ends with the process
		return nil, ctx.Err()
	}
}

// Document is a whole document, with an optional TTL.
type Document struct {
	Body
	TTL TTL `name:"ttl" placeholder:"TIME"`
}

func (d Document) read(ctx context.Context, streams output.Streams) ([]byte, error) {
	body, err := d.Body.read(ctx, streams)
	if err != nil || d.TTL == 0 {
		return body, err
	}
	return insertTTL(body, d.TTL)
}

// insertTTL puts a ttl at the beginning of an object, and changes nothing else in it.
func insertTTL(body []byte, n TTL) ([]byte, error) {
	var members map[string]json.RawMessage
	body = bytes.TrimSpace(body)
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, output.Usagef("--ttl %d needs a document that is a JSON object: this one is not", n)
	}
	if own, ok := members["ttl"]; ok {
		return nil, output.Usagef("--ttl %d: the document already has a ttl, %s: leave one of the two out", n, own)
	}
	separator := ","
	if len(members) == 0 {
		separator = ""
	}
	return append(fmt.Appendf(nil, `{"ttl":%d%s`, n, separator), body[1:]...), nil
}

// Deadlined is the flag of writes that may have an absolute deadline.
type Deadlined struct {
	ExpiresAt *Deadline `placeholder:"TIME"`
}

// Limited is the flag of writes that may limit a ttl.
type Limited struct {
	NotAfter *Deadline `placeholder:"TIME"`
}

// Begun is the flags of writes that may say where the clock of the document begins.
type Begun struct {
	Deadlined
	Clock *Instant `placeholder:"TIME"`
}

// begin is the instant as lapse reads it, empty if the user gave none.
func (b Begun) begin() string {
	if b.Clock == nil {
		return ""
	}
	return b.Clock.UTC().Format(time.RFC3339Nano)
}

// Clocked is the flags of writes that may keep the clock of the document.
type Clocked struct {
	Begun
	KeepClock bool
}

// Targeted is the flag of writes that may make the document a message.
type Targeted struct {
	To *TargetName `name:"target" placeholder:"TARGET"`
}

// clock is all flags of the clock of a document, and of what its expiry delivers.
type clock struct {
	Clocked
	Limited
	Targeted
}

// Put creates or replaces a document.
type Put struct {
	Target
	Document
	Limited
	Targeted
	Clocked
	Writing
	Connection
}

// Run runs the command.
func (c *Put) Run(ctx context.Context, streams output.Streams) error {
	return write(ctx, &c.Connection, streams, wire.Upsert, c.Target, c.Document, c.Writing, clock{c.Clocked, c.Limited, c.Targeted})
}

// Create creates a document that does not exist.
type Create struct {
	Target
	Document
	Limited
	Targeted
	Begun
	Writing
	Connection
}

// Run runs the command.
func (c *Create) Run(ctx context.Context, streams output.Streams) error {
	return write(ctx, &c.Connection, streams, wire.Create, c.Target, c.Document, c.Writing, clock{Clocked{Begun: c.Begun}, c.Limited, c.Targeted})
}

// Replace replaces a document that exists.
type Replace struct {
	Target
	Document
	Limited
	Targeted
	Clocked
	Writing
	Connection
}

// Run runs the command.
func (c *Replace) Run(ctx context.Context, streams output.Streams) error {
	return write(ctx, &c.Connection, streams, wire.Replace, c.Target, c.Document, c.Writing, clock{c.Clocked, c.Limited, c.Targeted})
}

// Patch changes members of a document.
type Patch struct {
	Target
	Body
	Clocked
	Writing
	Connection
}

// Run runs the command.
func (c *Patch) Run(ctx context.Context, streams output.Streams) error {
	return write(ctx, &c.Connection, streams, wire.Patch, c.Target, c.Body, c.Writing, clock{Clocked: c.Clocked})
}

// Touch renews a document's time to live.
type Touch struct {
	Targets
	Begun
	Writing
	Connection
}

// Run runs the command.
func (c *Touch) Run(ctx context.Context, streams output.Streams) error {
	if several, err := c.several(c.Writing); err != nil || several {
		if err != nil {
			return err
		}
		return writeMany(ctx, &c.Connection, streams, wire.Touch, c.Targets, "touched", c.Writing, c.Begun)
	}
	return write(ctx, &c.Connection, streams, wire.Touch, c.one(), noBody{}, c.Writing, clock{Clocked: Clocked{Begun: c.Begun}})
}

// Delete removes a document.
type Delete struct {
	Targets
	Writing
	Connection
}

// Run runs the command.
func (c *Delete) Run(ctx context.Context, streams output.Streams) error {
	if several, err := c.several(c.Writing); err != nil || several {
		if err != nil {
			return err
		}
		return writeMany(ctx, &c.Connection, streams, wire.Delete, c.Targets, "deleted", c.Writing, Begun{})
	}
	return write(ctx, &c.Connection, streams, wire.Delete, c.one(), noBody{}, c.Writing, clock{})
}

// bodySource is where a write takes its body from.
type bodySource interface {
	read(context.Context, output.Streams) ([]byte, error)
}

// noBody is the source of a write without a body.
type noBody struct{}

func (noBody) read(context.Context, output.Streams) ([]byte, error) { return nil, nil }

// write publishes a write and prints its outcome.
func write(ctx context.Context, c *Connection, streams output.Streams, op wire.Op, t Target, body bodySource, w Writing, asked clock) error {
	if err := t.Check(); err != nil {
		return err
	}
	if asked.KeepClock && asked.Clock != nil {
		return output.Usagef("--keep-clock and --clock contradict each other: leave one out")
	}
	data, err := body.read(ctx, streams)
	if err != nil {
		return err
	}
	return publish(ctx, c, streams, func(prefix wire.Prefix) client.Message {
		m := client.Message{
			Subject: prefix.Write(op, t.Collection, t.ID), Body: data,
			IfMatch: Text(w.IfMatch), ID: Text(w.MsgID), Traceparent: Text(w.Traceparent),
		}
		m.ExpiresAt, m.NotAfter, m.Target = asked.ExpiresAt.text(), asked.NotAfter.text(), Text(asked.To)
		if m.Clock = asked.begin(); asked.KeepClock {
			m.Clock = wire.ClockKeep
		}
		return m
	}, t.String(), func(o wire.Outcome) string { return describeWrite(op, t, o) })
}

func describeWrite(op wire.Op, t Target, o wire.Outcome) string {
	if op == wire.Delete {
		return "deleted " + t.String()
	}
	done := map[wire.Op]string{wire.Patch: "patched", wire.Touch: "touched"}[op]
	switch {
	case o.Status == wire.StatusCreated:
		done = "created"
	case done == "":
		done = "replaced"
	}
	return fmt.Sprintf("%s %s etag=%s expires=%s", done, t, o.Etag, output.Expires(o.ExpiresAt))
}
