package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Forgotten says from when on no byte of a document is anywhere, or where it may still have some.
type Forgotten struct {
	Target
	Ended *Instant `placeholder:"TIME"`
	Connection
}

// places are where bytes of documents are, in the order of the report.
var places = []string{"log", "snapshots", "events", "redis"}

// forgottenReport is what the command prints.
type forgottenReport struct {
	Collection string `json:"collection"`
	ID         string `json:"id"`
	// CleanSince is an instant for each place: a document that ended before it has no bytes there. A place is absent
	// if lapse does not know its instant.
	CleanSince map[string]wire.Time `json:"cleanSince"`
	// EndedBefore is the oldest of these instants: a document that ended before it has no bytes in any place. It is
	// absent if a place is.
	EndedBefore wire.Time `json:"endedBefore,omitzero"`
	Ended       wire.Time `json:"ended,omitzero"`
	// Only if Ended is known: Left are the places that may have bytes, and Until when they have none any more.
	Forgotten *bool     `json:"forgotten,omitempty"`
	Left      []string  `json:"left,omitempty"`
	Until     wire.Time `json:"until,omitzero"`
}

// Run runs the command.
func (c *Forgotten) Run(ctx context.Context, streams output.Streams) error {
	if err := c.Check(); err != nil {
		return err
	}
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := c.checkGone(ctx, conn); err != nil {
		return err
	}
	state, err := conn.Status(ctx)
	if err != nil {
		return err
	}
	clean, within, err := cleanSince(state)
	if err != nil {
		return err
	}
	r := forgottenReport{Collection: c.Collection, ID: c.ID, CleanSince: clean}
	r.judge(c.Ended, within)
	if c.JSON() {
		err = output.PrintJSON(streams.Out, r)
	} else {
		err = r.print(streams, c.Target.String())
	}
	if err == nil && len(r.Left) > 0 {
		err = output.Printed(output.Differs(fmt.Errorf("%s: bytes may be left until %s in: %s", c.Target, r.Until, strings.Join(r.Left, ", "))))
	}
	return err
}

// checkGone returns an error if the document is live, or may be held back in a paused collection.
func (c *Forgotten) checkGone(ctx context.Context, conn *client.Client) error {
	_, err := conn.Get(ctx, c.Collection, c.ID)
	if err == nil {
		return &output.StatusError{Status: wire.StatusConflict, Text: fmt.Sprintf("%s is live: delete it first", c.Target)}
	}
	if errors.Is(err, client.ErrNoCollection) {
		return nil // it may have been dropped
	}
	if !errors.Is(err, client.ErrNotFound) {
		return fmt.Errorf("%s: %w", c.Target, err)
	}
	config, err := conn.Config(ctx, c.Collection)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Target, err)
	}
	if config.Paused {
		text := fmt.Sprintf("collection %s is paused, and keeps what has expired: run lapse resume %s first", c.Collection, c.Collection)
		return &output.StatusError{Status: wire.StatusConflict, Text: text}
	}
	return nil
}

// cleanSince reads from a status, for each place, the oldest CleanSince of the shards, and the longest --forget-within.
func cleanSince(s client.Status) (clean map[string]wire.Time, within time.Duration, err error) {
	clean = make(map[string]wire.Time)
	for _, shard := range s.Shards {
		r := shard.Retention
		if !shard.Alive || r == nil || r.CleanSince == nil {
			return nil, 0, &output.StatusError{Status: wire.StatusUnavailable, Text: fmt.Sprintf("no process says what is left of documents in shard %d: repeat the command once lapse status has it", shard.Shard)}
		}
		within = max(within, time.Duration(r.Within*float64(time.Second)))
		for place, since := range r.CleanSince {
			if had, ok := clean[place]; !ok || since < had {
				clean[place] = since
			}
		}
	}
	if len(clean) == 0 {
		return nil, 0, &output.StatusError{Status: wire.StatusUnavailable, Text: "no process owns a shard, so none knows what is left of documents: start lapse, and repeat the command"}
	}
	return clean, within, nil
}

// judge compares the places with the end of the document, if that is known.
func (r *forgottenReport) judge(ended *Instant, within time.Duration) {
	known := true
	for _, place := range places {
		since, ok := r.CleanSince[place]
		known = known && ok
		if r.EndedBefore == 0 || since < r.EndedBefore {
			r.EndedBefore = since
		}
	}
	if !known {
		r.EndedBefore = 0
	}
	if ended == nil {
		return
	}
	r.Ended = wire.Time(ended.UnixMilli())
	for _, place := range places {
		if since, ok := r.CleanSince[place]; !ok || since <= r.Ended {
			r.Left = append(r.Left, place)
		}
	}
	forgotten := len(r.Left) == 0
	if r.Forgotten = &forgotten; !forgotten {
		r.Until = r.Ended + wire.Time(within.Milliseconds())
	}
}

// print prints the report as text.
func (r *forgottenReport) print(streams output.Streams, name string) error {
	w := newTable(streams.Out)
	_, _ = fmt.Fprintln(w, "PLACE\tNO BYTES OF DOCUMENTS THAT ENDED BEFORE\t")
	for _, place := range places {
		since, verdict := "not known: lapse may not ask Redis to write its files anew", ""
		if at, ok := r.CleanSince[place]; ok {
			since = at.String()
		}
		if slices.Contains(r.Left, place) {
			verdict = "may have bytes"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", place, since, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	text := "If it had ended before " + r.EndedBefore.String() + ", no byte of it is anywhere: say with --ended when it had"
	switch {
	case r.Forgotten != nil && *r.Forgotten:
		text = "no byte of it is anywhere: it had ended by " + r.Ended.String()
	case r.Forgotten != nil:
		text = fmt.Sprintf("bytes may be left until %s in: %s", r.Until, strings.Join(r.Left, ", "))
	case r.EndedBefore == 0:
		text = "lapse does not know of every place"
	}
	_, err := fmt.Fprintf(streams.Out, "%s: %s\n", name, text)
	return err
}
