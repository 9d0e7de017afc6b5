package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Writing is the flags of every write. The tag of a command in commandLine names those that it lacks.
type Writing struct {
	ExpiresAt   *Deadline `placeholder:"TIME"`
	Clock       *Instant  `placeholder:"TIME"`
	KeepClock   bool
	IfMatch     *Etag   `placeholder:"ETAG"`
	Traceparent *Header `placeholder:"TRACE"`
	MsgID       *Header `name:"msg-id" placeholder:"ID"`
}

// message is the message of a write, without its subject and body.
func (w Writing) message() (client.Message, error) {
	m := client.Message{
		ExpiresAt: w.ExpiresAt.text(), IfMatch: Text(w.IfMatch), Traceparent: Text(w.Traceparent), ID: Text(w.MsgID),
	}
	switch {
	case w.KeepClock && w.Clock != nil:
		return m, output.Usagef("--keep-clock and --clock contradict each other: leave one out")
	case w.KeepClock:
		m.Clock = wire.ClockKeep
	case w.Clock != nil:
		m.Clock = w.Clock.UTC().Format(time.RFC3339Nano)
	}
	return m, nil
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

// documentWrite is the commands that write a document: put, create, replace and patch.
type documentWrite struct {
	Target
	Body
	TTL      TTL         `name:"ttl" placeholder:"TIME"`
	NotAfter *Deadline   `placeholder:"TIME"`
	To       *TargetName `name:"target" placeholder:"TARGET"`
	Writing
	Connection
}

// Run runs the command.
func (c *documentWrite) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	if err := c.Check(); err != nil {
		return err
	}
	m, err := c.message()
	if err != nil {
		return err
	}
	m.NotAfter, m.Target = c.NotAfter.text(), Text(c.To)
	if m.Body, err = c.read(ctx, streams); err == nil && c.TTL != 0 {
		m.Body, err = insertTTL(m.Body, c.TTL)
	}
	if err != nil {
		return err
	}
	return write(ctx, &c.Connection, streams, opOf(parsed), c.Target, m)
}

// opOf is the operation of the command.
func opOf(parsed *kong.Context) wire.Op {
	if name := parsed.Selected().Name; name != "put" {
		return wire.Op(name)
	}
	return wire.Upsert
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

// write publishes a write and prints its outcome.
func write(
	ctx context.Context, c *Connection, streams output.Streams, op wire.Op, t Target, m client.Message,
) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	m.Subject = prefix.Write(op, t.Collection, t.ID)
	result, err := conn.Write(ctx, m)
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	return report(c, streams, result, t.String(), func(o wire.Outcome) string { return describeWrite(op, t, o) })
}

// describeWrite says what a write has done.
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

// Schedule creates a message.
type Schedule struct {
	To TargetName `arg:"" name:"target"`
	Body
	At          *Deadline `xor:"when" required:"" placeholder:"TIME"`
	In          *Period   `xor:"when" required:"" placeholder:"TIME"`
	Collection  *string   `placeholder:"NAME"`
	ID          *string   `name:"id" placeholder:"TEXT"`
	Traceparent *Header   `placeholder:"TRACE"`
	MsgID       *Header   `name:"msg-id" placeholder:"ID"`
	Connection
}

// Run runs the command.
func (c *Schedule) Run(ctx context.Context, streams output.Streams) error {
	target := string(c.To)
	collection, _, _ := strings.Cut(target, ".")
	if c.Collection != nil {
		collection = *c.Collection
	}
	if c.ID == nil && c.MsgID != nil {
		return output.Usagef("--msg-id %s needs an --id: with a random id each message is another one", *c.MsgID)
	}
	doc := Target{Collection: collection, ID: rand.Text()}
	if c.ID != nil {
		doc.ID = *c.ID
	}
	if err := doc.Check(); err != nil {
		return err
	}
	at := c.At
	if c.In != nil {
		if *c.In <= 0 {
			return output.Usagef("--in %s is not valid: use a duration over 0 such as 90s, 10m or 7d", time.Duration(*c.In))
		}
		at = &Deadline{time.Now().Add(time.Duration(*c.In))}
	}
	body, err := c.Body.read(ctx, streams)
	if err != nil {
		return err
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	result, err := conn.Write(ctx, client.Message{
		Subject: prefix.Write(wire.Create, doc.Collection, doc.ID), Body: body, Target: target, ExpiresAt: at.text(),
		ID: Text(c.MsgID), Traceparent: Text(c.Traceparent),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	if result.Raw != nil {
		// strings cannot fail
		named, _ := json.Marshal(map[string]string{"collection": doc.Collection, "id": doc.ID, "target": target})
		result.Raw = append(append(named[:len(named)-1], ','), bytes.TrimPrefix(result.Raw, []byte("{"))...)
	}
	return report(&c.Connection, streams, result, doc.String(), func(o wire.Outcome) string {
		return fmt.Sprintf("scheduled %s etag=%s target=%s due=%s%s", doc, o.Etag, target, output.Expires(o.ExpiresAt),
			day(o.ExpiresAt, time.Now()))
	})
}

// day says, of an instant of today or tomorrow, which of them it is here; "" of others.
func day(at *wire.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	here := time.UnixMilli(int64(*at)).In(now.Location())
	name := map[string]string{
		now.Format(time.DateOnly): "today", now.AddDate(0, 0, 1).Format(time.DateOnly): "tomorrow",
	}[here.Format(time.DateOnly)]
	if name == "" {
		return ""
	}
	return " (" + name + " at " + here.Format(time.TimeOnly) + ")"
}
