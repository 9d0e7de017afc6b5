package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Apply gives collections the configurations that a file has.
type Apply struct {
	File   string `short:"f" required:"" placeholder:"FILE"`
	DryRun bool
	Prune  bool
	Asking
	Connection
}

// planned is what apply does with a collection.
type planned struct {
	Collection string       `json:"collection"`
	Action     string       `json:"action"` // create, change, drop
	From       *wire.Config `json:"from,omitempty"`
	To         *wire.Config `json:"to,omitempty"`
	// AtOnce is how many documents the change expires at once, or the drop removes.
	AtOnce int64 `json:"atOnce"`
}

// Run runs the command.
func (c *Apply) Run(ctx context.Context, streams output.Streams) error {
	wanted, err := c.read(streams)
	if err != nil {
		return err
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	plan, err := c.plan(ctx, conn, wanted)
	if err != nil {
		return err
	}
	if c.DryRun {
		return c.show(streams, plan)
	}
	if err := c.confirm(ctx, streams, plan); err != nil {
		return err
	}
	for i, one := range plan {
		if err := c.do(ctx, conn, prefix, one); err != nil {
			return fmt.Errorf("%w; %d of %d changes are made", err, i, len(plan))
		}
		if err := c.print(streams, one, map[string]string{"create": "created", "change": "changed", "drop": "dropped"}[one.Action]); err != nil {
			return err
		}
	}
	if len(plan) == 0 && !c.JSON() {
		_, err = fmt.Fprintf(streams.Out, "nothing to change: all %d collections are as in the file\n", len(wanted))
	}
	return err
}

// read reads the file.
func (c *Apply) read(streams output.Streams) ([]namedConfig, error) {
	in := streams.In
	if c.File == "-" {
		streams.NoticeTerminal("configurations")
	} else {
		f, err := os.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	wanted, err := readConfigs(in)
	if err != nil {
		return nil, output.Usagef("%s: %w", c.File, err)
	}
	if len(wanted) == 0 && c.Prune {
		return nil, output.Usagef("%s has no collection, and --prune would drop all of them: give it a file with those that are to stay", c.File)
	}
	return wanted, nil
}

// plan compares the file with the collections as they are.
func (c *Apply) plan(ctx context.Context, conn *client.Client, wanted []namedConfig) (plan []planned, err error) {
	for _, want := range wanted {
		now, err := configOf(ctx, conn, want.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", want.Name, err)
		}
		to := want.Config
		if !want.pauses {
			to.Paused = now.Paused
		}
		one := planned{Collection: want.Name, Action: "change", From: &now, To: &to}
		if now.Etag == 0 {
			one.Action = "create"
		} else if len(differences(now, to)) == 0 {
			continue
		}
		if one.AtOnce, err = atOnce(ctx, conn, want.Name, now, to); err != nil {
			return nil, fmt.Errorf("%s: what would expire: %w", want.Name, err)
		}
		plan = append(plan, one)
	}
	if !c.Prune {
		return plan, nil
	}
	all, err := everyCollection(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		if !slices.ContainsFunc(wanted, func(want namedConfig) bool { return want.Name == one.Name }) {
			from, err := conn.Config(ctx, one.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", one.Name, err)
			}
			plan = append(plan, planned{Collection: one.Name, Action: "drop", From: &from, AtOnce: one.Live})
		}
	}
	return plan, nil
}

// atOnce is how many documents a change of the default and of maxLife expires at once.
func atOnce(ctx context.Context, conn *client.Client, name string, from, to wire.Config) (int64, error) {
	same := from.DefaultTTL != nil && to.DefaultTTL != nil && *from.DefaultTTL == *to.DefaultTTL && from.MaxLife == to.MaxLife
	if to.DefaultTTL == nil || same || from.IndexingMode == wire.NoIndex {
		return 0, nil // a collection without an index has no deadlines yet
	}
	text, err := json.Marshal(to.DefaultTTL)
	if err != nil {
		return 0, err
	}
	reply, err := conn.Forecast(ctx, name, wire.ForecastRequest{Buckets: 1, Within: time.Second.String(), DefaultTTL: text, MaxLife: &to.MaxLife})
	if errors.Is(err, client.ErrNoCollection) {
		return 0, nil
	}
	if err != nil || reply.AtOnce == nil {
		return 0, err
	}
	return *reply.AtOnce, nil
}

// differences are the members that differ, each with both values.
func differences(from, to wire.Config) (all []string) {
	values := func(c wire.Config) map[string]string {
		text, _ := json.Marshal(c.Published())
		var members map[string]json.RawMessage
		_ = json.Unmarshal(text, &members)
		found := make(map[string]string)
		for name, value := range members {
			found[name] = string(value)
		}
		return found
	}
	before, after := values(from), values(to)
	for _, name := range wire.ConfigProperties {
		if before[name] != after[name] {
			all = append(all, fmt.Sprintf("%s: %s -> %s", name, cmp.Or(before[name], "-"), cmp.Or(after[name], "-")))
		}
	}
	return all
}

// errDiffers ends a dry run that has found differences.
var errDiffers = errors.New("nothing is changed")

// show prints the plan of a dry run.
func (c *Apply) show(streams output.Streams, plan []planned) error {
	for _, one := range plan {
		if err := c.print(streams, one, "would "+one.Action); err != nil {
			return err
		}
	}
	if len(plan) == 0 {
		if c.JSON() {
			return nil
		}
		_, err := fmt.Fprintln(streams.Out, "no differences")
		return err
	}
	return output.Printed(output.Differs(fmt.Errorf("%s: %s; %w", c.File, plural(len(plan), "collection differs", "collections differ"), errDiffers)))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// print prints what is done with a collection, or would be.
func (c *Apply) print(streams output.Streams, one planned, done string) error {
	if c.JSON() {
		return output.PrintJSON(streams.Out, one)
	}
	line := done + " " + one.Collection
	switch one.Action {
	case "create":
		line = done + " " + output.Config(one.Collection, *one.To)
	case "change":
		line += " " + strings.Join(differences(*one.From, *one.To), ", ")
	case "drop":
		line += ", with " + output.Documents(one.AtOnce)
	}
	if one.Action != "drop" && one.AtOnce > 0 {
		line += fmt.Sprintf(" (expires %s at once)", output.Documents(one.AtOnce))
	}
	_, err := fmt.Fprintln(streams.Out, line)
	return err
}

// confirm asks before documents are removed.
func (c *Apply) confirm(ctx context.Context, streams output.Streams, plan []planned) error {
	drops, expires, removed := 0, int64(0), int64(0)
	for _, one := range plan {
		if one.Action == "drop" {
			drops, removed = drops+1, removed+one.AtOnce
		} else {
			expires += one.AtOnce
		}
	}
	if drops > 0 && !c.Yes && !streams.Interactive() {
		return output.Usagef("--prune would drop %s with %s: add --yes if that is meant, or look at it first with --dry-run",
			plural(drops, "collection", "collections"), output.Documents(removed))
	}
	return c.ask(ctx, streams, func() (string, error) {
		if drops == 0 && expires == 0 {
			return "", nil
		}
		return fmt.Sprintf("This drops %s with %s, and expires %s at once, for good. Apply it?",
			plural(drops, "collection", "collections"), output.Documents(removed), output.Documents(expires)), nil
	})
}

// do makes one change.
func (c *Apply) do(ctx context.Context, conn *client.Client, prefix wire.Prefix, one planned) error {
	m := client.Message{Subject: prefix.Drop(one.Collection)}
	if one.From.Etag != 0 {
		m.IfMatch = one.From.Etag.String()
	}
	var steps [][]byte
	if one.Action == "drop" {
		steps = [][]byte{nil}
	} else {
		m.Subject = prefix.Config(one.Collection)
		for _, config := range through(*one.From, *one.To) {
			body, err := json.Marshal(config.Published())
			if err != nil {
				return err
			}
			steps = append(steps, body)
		}
	}
	for _, m.Body = range steps {
		result, err := conn.Write(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Collection, err)
		}
		switch status := result.Outcome.Status; {
		case status == wire.StatusPreconditionFailed:
			text := one.Collection + ": somebody has changed it meanwhile: run the command again"
			return &output.StatusError{Status: status, Text: text}
		case status >= wire.StatusBadRequest:
			return &output.StatusError{Status: status, Text: fmt.Sprintf("%s: %d: %s", one.Collection, status, result.Outcome.Error)}
		}
		m.IfMatch = result.Outcome.Etag.String()
	}
	return nil
}

// through are the configurations by which one becomes another. TTL and the indexing mode none exclude each other, so
// between the two TTL is off with an index.
func through(from, to wire.Config) []wire.Config {
	if from.DefaultTTL != nil && to.IndexingMode == wire.NoIndex || from.IndexingMode == wire.NoIndex && to.DefaultTTL != nil {
		between := from
		between.DefaultTTL, between.IndexingMode = nil, wire.Consistent
		between.MinTTL, between.MaxTTL, between.MaxLife = 0, 0, 0 // they need a default
		return []wire.Config{between, to}
	}
	return []wire.Config{to}
}
