package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed18712806/lapse/cmd/internal/client"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Target is the document that a command is about.
type Target struct {
	Collection string `arg:"" help:"Collection of the document."`
	ID         string `arg:"" name:"id" help:"Id of the document, as it is (not escaped)."`
}

func (t Target) String() string { return t.Collection + "/" + show(t.ID) }

func (t Target) check() error {
	return errors.Join(wire.CheckCollection(t.Collection), wire.CheckID(t.ID))
}

// Publishing is the flags of every message.
type Publishing struct {
	MsgID string `name:"msg-id" placeholder:"ID" help:"Id by which the log drops duplicates: sent again with the same, it takes effect once."`
}

// Writing is the flags of every write.
type Writing struct {
	IfMatch     string `placeholder:"ETAG" help:"Only if the document that is there has this etag (*: any)."`
	Traceparent string `placeholder:"TRACE" help:"W3C trace context, which the expiry event will carry."`
	Publishing
}

// Body is what a command writes.
type Body struct {
	JSON string `arg:"" optional:"" name:"json" default:"-" help:"JSON object; @FILE reads it from a file, - (or nothing) from standard input."`
}

func (b Body) read(streams Streams) ([]byte, error) {
	if b.JSON == "-" {
		return io.ReadAll(streams.In)
	}
	if path, ok := strings.CutPrefix(b.JSON, "@"); ok {
		return os.ReadFile(path)
	}
	return []byte(b.JSON), nil
}

// Document is a whole document that a command writes.
type Document struct {
	Body
	TTL ttl `name:"ttl" placeholder:"SECONDS" help:"Put this ttl into the document (-1: never expires)."`
}

func (d Document) read(streams Streams) ([]byte, error) {
	body, err := d.Body.read(streams)
	if err != nil || d.TTL == 0 {
		return body, err
	}
	return insertTTL(body, d.TTL)
}

// insertTTL puts a ttl at the beginning of an object, which stays as it is else.
func insertTTL(body []byte, n ttl) ([]byte, error) {
	var members map[string]json.RawMessage
	body = bytes.TrimSpace(body)
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, errors.New("--ttl: the document is not a JSON object that a ttl could be put into")
	}
	if own, ok := members["ttl"]; ok {
		return nil, fmt.Errorf("--ttl %d: the document has a ttl of its own, %s: give one of them", n, own)
	}
	separator := ","
	if len(members) == 0 {
		separator = ""
	}
	return append(fmt.Appendf(nil, `{"ttl":%d%s`, n, separator), body[1:]...), nil
}

type putCommand struct {
	Target
	Document
	Writing
	Connection
}

func (c *putCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Upsert, c.Target, c.Document, c.Writing)
}

type createCommand struct {
	Target
	Document
	Writing
	Connection
}

func (c *createCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Create, c.Target, c.Document, c.Writing)
}

type replaceCommand struct {
	Target
	Document
	Writing
	Connection
}

func (c *replaceCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Replace, c.Target, c.Document, c.Writing)
}

type patchCommand struct {
	Target
	Body
	Writing
	Connection
}

func (c *patchCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Patch, c.Target, c.Body, c.Writing)
}

type touchCommand struct {
	Target
	Writing
	Connection
}

func (c *touchCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Touch, c.Target, nothing{}, c.Writing)
}

type deleteCommand struct {
	Target
	Writing
	Connection
}

func (c *deleteCommand) Run(ctx context.Context, streams Streams) error {
	return c.write(ctx, streams, wire.Delete, c.Target, nothing{}, c.Writing)
}

// nothing is the body of a write that has none.
type nothing struct{}

func (nothing) read(Streams) ([]byte, error) { return nil, nil }

// write does a write to the end, and prints what became of it.
func (c *Connection) write(ctx context.Context, streams Streams, op wire.Op, t Target, body interface {
	read(Streams) ([]byte, error)
}, flags Writing) error {
	if err := t.check(); err != nil {
		return err
	}
	data, err := body.read(streams)
	if err != nil {
		return err
	}
	return c.publish(ctx, streams, func(prefix wire.Prefix) client.Message {
		return client.Message{
			Subject: prefix.Write(op, t.Collection, t.ID), Body: data,
			IfMatch: flags.IfMatch, ID: flags.MsgID, Traceparent: flags.Traceparent,
		}
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
	return fmt.Sprintf("%s %s etag=%s expires=%s", done, t, o.Etag, expires(o.ExpiresAt))
}

type dropCommand struct {
	Collection string `arg:"" help:"Collection to remove."`
	Publishing
	Connection
}

func (c *dropCommand) Run(ctx context.Context, streams Streams) error {
	if err := wire.CheckCollection(c.Collection); err != nil {
		return err
	}
	return c.publish(ctx, streams, func(prefix wire.Prefix) client.Message {
		return client.Message{Subject: prefix.Drop(c.Collection), ID: c.MsgID}
	}, c.Collection, func(wire.Outcome) string { return "dropped " + c.Collection })
}

type configCommand struct {
	Collection string      `arg:"" help:"Collection to show, or to configure."`
	DefaultTTL *defaultTTL `name:"default-ttl" placeholder:"off|-1|SECONDS" help:"Time to live of documents without a ttl of their own; -1: these never expire; off: none does."`
	Indexing   *string     `enum:"consistent,none" placeholder:"consistent|none" help:"Whether there is an expiry index; without, no default-ttl can be set."`
	Publishing
	Connection
}

// Help implements kong.HelpProvider.
func (configCommand) Help() string {
	return `Without flags it prints the configuration. With one of them it sets the whole of it:
what is not given becomes off, and consistent. A change counts at once, for the
documents that are there too.`
}

func (c *configCommand) Run(ctx context.Context, streams Streams) error {
	if err := wire.CheckCollection(c.Collection); err != nil {
		return err
	}
	if c.DefaultTTL == nil && c.Indexing == nil {
		return c.show(ctx, streams)
	}
	config := wire.Config{IndexingMode: wire.Consistent}
	if c.Indexing != nil {
		config.IndexingMode = wire.Indexing(*c.Indexing)
	}
	if c.DefaultTTL != nil && ttlrules.Default(*c.DefaultTTL) != ttlrules.Off {
		config.DefaultTTL = (*int32)(c.DefaultTTL)
	}
	body, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return c.publish(ctx, streams, func(prefix wire.Prefix) client.Message {
		return client.Message{Subject: prefix.Config(c.Collection), Body: body, ID: c.MsgID}
	}, c.Collection, func(wire.Outcome) string { return "configured " + describeConfig(c.Collection, config) })
}

func (c *configCommand) show(ctx context.Context, streams Streams) error {
	conn, _, err := c.connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	config, err := conn.Config(ctx, c.Collection)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Collection, err)
	}
	if c.json() {
		return printJSON(streams.Out, config)
	}
	_, err = fmt.Fprintln(streams.Out, describeConfig(c.Collection, config))
	return err
}

func describeConfig(collection string, c wire.Config) string {
	ttl := "off"
	if c.DefaultTTL != nil {
		ttl = fmt.Sprint(*c.DefaultTTL)
	}
	text := fmt.Sprintf("%s default-ttl=%s indexing=%s", collection, ttl, c.IndexingMode)
	if c.IndexBuilding {
		text += " (being built)"
	}
	return text
}

// publish publishes a message, waits for its outcome and prints it: as it came,
// or by describe. An error names the target.
func (c *Connection) publish(ctx context.Context, streams Streams, message func(wire.Prefix) client.Message, target string, describe func(wire.Outcome) string) error {
	conn, prefix, err := c.connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	result, err := conn.Write(ctx, message(prefix))
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	switch {
	case result.Duplicate && c.json():
		return printJSON(streams.Out, map[string]any{"duplicate": true, "seq": result.Seq})
	case result.Duplicate:
		_, err = fmt.Fprintf(streams.Out, "duplicate %s: the log has a message with this id (sequence %d); nothing is changed\n", target, result.Seq)
	case c.json():
		err = printJSON(streams.Out, result.Raw)
	case result.Outcome.Status < wire.StatusBadRequest:
		_, err = fmt.Fprintln(streams.Out, describe(result.Outcome))
	}
	if result.Outcome.Status >= wire.StatusBadRequest {
		return fmt.Errorf("%s: %d: %s", target, result.Outcome.Status, result.Outcome.Error)
	}
	return err
}

func expires(at *wire.Time) string {
	if at == nil {
		return "never"
	}
	return at.String()
}
