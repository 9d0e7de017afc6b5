package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Status prints which streams and processes of lapse a server has.
type Status struct {
	Connection
}

// Run runs the command.
func (c *Status) Run(ctx context.Context, streams output.Streams) error {
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := conn.Status(ctx)
	if err != nil {
		return err
	}
	paused, indexes := odd(ctx, conn, state)
	if c.JSON() {
		return output.PrintJSON(streams.Out, struct {
			client.Status
			Paused  []string     `json:"paused,omitempty"`  // names of collections
			Indexes []namedIndex `json:"indexes,omitempty"` // that do not have everything
		}{state, paused, indexes})
	}
	if err := printStatus(streams.Out, state); err != nil {
		return err
	}
	if len(paused) > 0 {
		_, err = fmt.Fprintf(streams.Out, "\npaused: %s (lapse resume)\n", strings.Join(paused, ", "))
	}
	for _, one := range indexes {
		_, err = fmt.Fprintf(streams.Out, "\nindex: %s\n", one)
	}
	return err
}

// namedIndex is an index of a collection.
type namedIndex struct {
	Collection string `json:"collection"`
	wire.IndexCount
}

// String says what is odd about the index.
func (i namedIndex) String() string {
	text := fmt.Sprintf("%s of %s", output.Name(i.Pointer), i.Collection)
	if m := i.Making; m != nil {
		text += fmt.Sprintf(" is being made, %d of %s are done", m.Made, output.Documents(m.Of))
	}
	if i.Making != nil && i.NotIndexed > 0 {
		text += ", and"
	}
	if i.NotIndexed > 0 {
		text += fmt.Sprintf(" leaves out %s, whose value is none that an index takes", output.Documents(i.NotIndexed))
	}
	return text
}

// odd are the names of the collections that are paused, and the indexes that are being made or leave out documents;
// none if no process tells.
func odd(ctx context.Context, conn *client.Client, s client.Status) (paused []string, indexes []namedIndex) {
	if !slices.ContainsFunc(s.Shards, func(one client.ShardStatus) bool { return one.Alive }) {
		return nil, nil
	}
	all, err := configured(ctx, conn)
	if err != nil {
		return nil, nil
	}
	for _, one := range all {
		if one.Paused {
			paused = append(paused, one.Name)
		}
		if len(one.Indexes) == 0 {
			continue
		}
		count, err := conn.Count(ctx, one.Name)
		if err != nil {
			continue
		}
		for _, index := range count.Indexes {
			if index.Making != nil || index.NotIndexed > 0 {
				indexes = append(indexes, namedIndex{one.Name, index})
			}
		}
	}
	return paused, indexes
}

func printStatus(out io.Writer, s client.Status) error {
	w := newTable(out)
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("prefix %s", s.Prefix)
	line("server %s %s, nats-server %s", s.Server.URL, s.Server.Name, s.Server.Version)
	for _, text := range regions(s.Region) {
		line("this region %s", text)
	}

	line("\nSTREAM\tMESSAGES\tBYTES\tFIRST\tLAST\tREPLICAS")
	for _, one := range s.Streams {
		line("%s\t%d\t%s\t%s\t%s\t%d", one.Name, one.Messages, output.Bytes(one.Bytes),
			output.Position(one.FirstSeq, one.FirstTime), output.Position(one.LastSeq, one.LastTime), one.Replicas)
	}
	if b := s.Checkpoints; b != nil {
		line("%s\t%d\t%s\t\t\t", b.Name, b.Entries, output.Bytes(b.Bytes))
	}

	line("")
	if len(s.Shards) == 0 {
		line("no process owns the log")
	}
	for _, shard := range s.Shards {
		switch {
		case shard.Owner == "":
			line("shard %d: no owner: the last one has left", shard.Shard)
			continue
		case !shard.Alive:
			line("shard %d: the owner %s is gone", shard.Shard, output.Name(shard.Owner))
			continue
		}
		line("shard %d: owner %s, applied up to %d, %d messages behind, %s overdue", shard.Shard, output.Name(shard.Owner),
			shard.Applied, shard.LagMessages, output.Seconds(shard.Overdue))
		if r := shard.Retention; r != nil {
			line("shard %d: %s", shard.Shard, retained(r))
		}
		if shard.Problem != "" {
			line("shard %d: problem: %s", shard.Shard, shard.Problem)
		}
	}

	shards, several := owned(s), len(s.Shards) > 1
	if several && len(s.Members) > 0 {
		line("\nPROCESS\tROLE\tSHARDS\tVERSION\tSTARTED\tSEEN\tPROBLEM")
	} else if len(s.Members) > 0 {
		line("\nPROCESS\tROLE\tVERSION\tSTARTED\tSEEN\tPROBLEM")
	}
	for _, m := range s.Members {
		role := m.Role
		if several {
			role += "\t" + cmp.Or(strings.Join(shards[m.Name], " "), "-")
		}
		line("%s\t%s\t%s\t%s\t%s ago\t%s", output.Name(m.Name), role, m.Version, m.Started, output.Seconds(m.SeenAgo),
			m.Problem)
	}
	return w.Flush()
}

// regions says what a region has to do with others.
func regions(r *client.RegionStatus) (texts []string) {
	if r == nil {
		return nil
	}
	add := func(format string, args ...any) { texts = append(texts, fmt.Sprintf(format, args...)) }
	switch {
	case r.Following != nil:
		add("%s", r.Following)
	case r.Follows != "":
		add("follows the region %q; no process says how far it is behind", r.Follows)
	}
	for _, f := range r.Followers {
		if add("is followed by the region %q, as that said %s ago", f.Domain,
			output.Seconds(f.SeenAgo)); f.SeenAgo > followerGone.Seconds() {
			texts[len(texts)-1] += ": if it is no more, run lapse forget-follower " + f.Domain
		}
	}
	for _, f := range r.Former {
		add("continues the log of the region %q behind %d: it was promoted %s", f.From, f.Last, f.Promotion)
	}
	if r.Promotion != nil {
		add("is being promoted, since %s", strings.TrimPrefix(r.Promotion.String(), "at "))
	}
	if r.Superseded != nil {
		add("is not the first any more: another was promoted %s", r.Superseded)
	}
	return texts
}

// followerGone is for how long a follower may have said nothing until status names the command that forgets it.
const followerGone = time.Hour

// retained says what an owner knows of snapshots, and of bytes that should be gone.
func retained(r *wire.Retention) string {
	text := fmt.Sprintf("%d of 2 snapshots", r.Snapshots)
	if r.Taken != 0 {
		text += fmt.Sprintf(", the newest up to %d since %s, with %d documents", r.Offset, r.Taken, r.Documents)
	}
	text += ", " + output.Bytes(r.Bytes) + "; bytes that should be gone"
	for i, place := range slices.Sorted(maps.Keys(r.Oldest)) {
		if i > 0 {
			text += ","
		}
		text += " in " + place + " for " + output.Seconds(r.Oldest[place]) + " at most"
	}
	return text + " (promised: " + output.Seconds(r.Within) + ")"
}

// owned lists the shards of each process by its name.
func owned(s client.Status) map[string][]string {
	shards := make(map[string][]string)
	for _, shard := range s.Shards {
		shards[shard.Owner] = append(shards[shard.Owner], strconv.Itoa(shard.Shard))
	}
	return shards
}

// Snapshot lets lapse take a snapshot of every shard now.
type Snapshot struct {
	Forget bool
	Connection
}

// Run runs the command.
func (c *Snapshot) Run(ctx context.Context, streams output.Streams) error {
	conn, _, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	order := conn.Snapshot
	if c.Forget {
		order = conn.Forget
	}
	p, err := order(ctx, func(p client.SnapshotProgress) {
		text := fmt.Sprintf("%d of %s", p.Done, numberOf(p.Shards, "shard"))
		if p.Failure != "" {
			text += ": " + p.Failure
		}
		_, _ = fmt.Fprintln(streams.Err, text)
	})
	if err != nil {
		return err
	}
	text := "took " + numberOf(p.Shards, "snapshot")
	if f := p.Forgotten; f != nil {
		text = fmt.Sprintf("nothing is left of what had ended by %s", f.Before)
		if len(f.Left) > 0 {
			text = fmt.Sprintf("of what had ended by %s bytes may be left until %s in: %s", f.Before, f.Until,
				strings.Join(f.Left, ", "))
		}
	}
	return c.print(streams, p, "%s", text)
}

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
		err = output.Printed(output.Differs(fmt.Errorf("%s: bytes may be left until %s in: %s", c.Target, r.Until,
			strings.Join(r.Left, ", "))))
	}
	return err
}

// checkGone returns an error if the document is live, or may be held back in a paused collection.
func (c *Forgotten) checkGone(ctx context.Context, conn *client.Client) error {
	_, err := conn.Get(ctx, c.Collection, c.ID)
	if err == nil {
		return output.Statusf(wire.StatusConflict, "%s is live: delete it first", c.Target)
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
		return output.Statusf(wire.StatusConflict, "collection %s is paused, and keeps what has expired: run lapse "+
			"resume %s first", c.Collection, c.Collection)
	}
	return nil
}

// cleanSince reads from a status, for each place, the oldest CleanSince of the shards, and the longest --forget-within.
func cleanSince(s client.Status) (clean map[string]wire.Time, within time.Duration, err error) {
	clean = make(map[string]wire.Time)
	for _, shard := range s.Shards {
		r := shard.Retention
		if !shard.Alive || r == nil || r.CleanSince == nil {
			return nil, 0, output.Statusf(wire.StatusUnavailable, "no process says what is left of documents in shard %d: "+
				"repeat the command once lapse status has it", shard.Shard)
		}
		within = max(within, time.Duration(r.Within*float64(time.Second)))
		for place, since := range r.CleanSince {
			if had, ok := clean[place]; !ok || since < had {
				clean[place] = since
			}
		}
	}
	if len(clean) == 0 {
		return nil, 0, output.Statusf(wire.StatusUnavailable, "no process owns a shard, so none knows what is left of "+
			"documents: start lapse, and repeat the command")
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
	text := "If it had ended before " + r.EndedBefore.String() + ", no byte of it is anywhere: say with --ended " +
		"when it had"
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
