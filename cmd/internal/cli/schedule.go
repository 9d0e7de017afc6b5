package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Schedule creates a message.
type Schedule struct {
	To TargetName `arg:"" name:"target"`
	Body
	At          *Deadline `xor:"when" required:"" placeholder:"TIME"`
	In          *Period   `xor:"when" required:"" placeholder:"TIME"`
	Collection  *string   `placeholder:"NAME"`
	ID          *string   `name:"id" placeholder:"TEXT"`
	Traceparent *Header   `placeholder:"TRACE"`
	Publishing
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
		named, _ := json.Marshal(map[string]string{"collection": doc.Collection, "id": doc.ID, "target": target}) // strings cannot fail
		result.Raw = append(append(named[:len(named)-1], ','), bytes.TrimPrefix(result.Raw, []byte("{"))...)
	}
	return report(&c.Connection, streams, result, doc.String(), func(o wire.Outcome) string {
		return fmt.Sprintf("scheduled %s etag=%s target=%s due=%s%s", doc, o.Etag, target, output.Expires(o.ExpiresAt), day(o.ExpiresAt, time.Now()))
	})
}

// day says, of an instant of today or tomorrow, which of them it is here; "" of others.
func day(at *wire.Time, now time.Time) string {
	if at == nil {
		return ""
	}
	here := time.UnixMilli(int64(*at)).In(now.Location())
	name := map[string]string{now.Format(time.DateOnly): "today", now.AddDate(0, 0, 1).Format(time.DateOnly): "tomorrow"}[here.Format(time.DateOnly)]
	if name == "" {
		return ""
	}
	return " (" + name + " at " + here.Format(time.TimeOnly) + ")"
}
