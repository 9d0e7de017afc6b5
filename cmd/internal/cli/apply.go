package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

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
		done := map[string]string{"create": "created", "change": "changed", "drop": "dropped"}[one.Action]
		if err := c.print(streams, one, done); err != nil {
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
		return nil, output.Usagef("%s has no collection, and --prune would drop all of them: give it a file with those "+
			"that are to stay", c.File)
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
	same := from.DefaultTTL != nil && to.DefaultTTL != nil && *from.DefaultTTL == *to.DefaultTTL &&
		from.MaxLife == to.MaxLife
	if to.DefaultTTL == nil || same || from.IndexingMode == wire.NoIndex {
		return 0, nil // a collection without an index has no deadlines yet
	}
	text, err := json.Marshal(to.DefaultTTL)
	if err != nil {
		return 0, err
	}
	request := wire.ForecastRequest{Buckets: 1, Within: time.Second.String(), DefaultTTL: text, MaxLife: &to.MaxLife}
	reply, err := conn.Forecast(ctx, name, request)
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
	return output.Printed(output.Differs(fmt.Errorf("%s: %s; %w", c.File,
		plural(len(plan), "collection differs", "collections differ"), errDiffers)))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// print prints what is done with a collection, or would be.
func (c *Apply) print(streams output.Streams, one planned, done string) error {
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
	return c.Connection.print(streams, one, "%s", line)
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
			return output.Statusf(status, "%s: somebody has changed it meanwhile: run the command again", one.Collection)
		case status >= wire.StatusBadRequest:
			return output.Statusf(status, "%s: %d: %s", one.Collection, status, result.Outcome.Error)
		}
		m.IfMatch = result.Outcome.Etag.String()
	}
	return nil
}

// through are the configurations by which one becomes another. TTL and the indexing mode none exclude each other, so
// between the two TTL is off with an index.
func through(from, to wire.Config) []wire.Config {
	if from.DefaultTTL != nil && to.IndexingMode == wire.NoIndex ||
		from.IndexingMode == wire.NoIndex && to.DefaultTTL != nil {
		between := from
		between.DefaultTTL, between.IndexingMode = nil, wire.Consistent
		between.MinTTL, between.MaxTTL, between.MaxLife = 0, 0, 0 // they need a default
		return []wire.Config{between, to}
	}
	return []wire.Config{to}
}

// namedConfig is the configuration of a collection, as a file has it.
type namedConfig struct {
	Name string
	wire.Config
	pauses bool // the file says whether it is paused
}

// writeConfigs writes configurations as YAML: a map of names, as readConfigs reads them.
func writeConfigs(out io.Writer, all []namedConfig) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range all {
		text, err := json.Marshal(one.Published())
		if err != nil {
			return err
		}
		var document yaml.Node
		if err := yaml.Unmarshal(text, &document); err != nil { // JSON is YAML
			return err
		}
		config := document.Content[0]
		config.Style = 0
		for _, node := range config.Content {
			if node.Kind == yaml.ScalarNode {
				node.Style = 0
			}
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: one.Name}, config)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "{}")
		return err
	}
	encoder := yaml.NewEncoder(out)
	encoder.SetIndent(2)
	return errors.Join(encoder.Encode(root), encoder.Close())
}

// readConfigs reads configurations: YAML or JSON, one or several documents, each of which is a map of the names of
// collections. They come in the order of their names. An error names the line.
func readConfigs(in io.Reader) (all []namedConfig, err error) {
	lines := make(map[string]int)
	decoder := yaml.NewDecoder(in)
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("it is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		root := document.Content[0]
		if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
			continue // an empty document
		}
		if root.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: a map from the names of collections to their configurations is needed, as "+
				"\"lapse config --all -o yaml\" prints it", root.Line)
		}
		for i := 0; i < len(root.Content); i += 2 {
			name, value := root.Content[i], root.Content[i+1]
			if err := wire.CheckCollection(name.Value); err != nil {
				return nil, fmt.Errorf("line %d: %w", name.Line, err)
			}
			if first, twice := lines[name.Value]; twice {
				return nil, fmt.Errorf("line %d: collection %s is in line %d too: leave one of them out", name.Line, name.Value,
					first)
			}
			lines[name.Value] = name.Line
			one, err := readConfig(name.Value, value)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b namedConfig) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// readConfig reads the configuration of a collection.
func readConfig(name string, node *yaml.Node) (namedConfig, error) {
	one := namedConfig{Name: name}
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return one, fmt.Errorf("line %d: the configuration of %s is not a map: use members such as defaultTtl, or {} for "+
			"the defaults", node.Line, name)
	}
	members, given := make(map[string]any), make(map[string]bool)
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(wire.ConfigProperties, key.Value):
			return one, fmt.Errorf("line %d: %s of %s is not known%s: a configuration has %s", key.Line,
				wire.Quote(key.Value), name, didYouMean(key.Value, wire.ConfigProperties),
				strings.Join(wire.ConfigProperties, ", "))
		case given[key.Value]:
			return one, fmt.Errorf("line %d: %s of %s comes twice: leave one of them out", key.Line, key.Value, name)
		}
		given[key.Value] = true
		var content any
		if err := value.Decode(&content); err != nil {
			return one, fmt.Errorf("line %d: %s of %s is not valid: %w", value.Line, key.Value, name, err)
		}
		if content == nil && key.Value != "defaultTtl" {
			continue // as if it were left out
		}
		members[key.Value] = content
		text, err := json.Marshal(map[string]any{key.Value: content})
		if err == nil {
			err = json.NewDecoder(bytes.NewReader(text)).Decode(&wire.Config{})
		}
		if err != nil {
			return one, fmt.Errorf("line %d: %s of %s is not valid: use %s", value.Line, key.Value, name, memberUse(key.Value))
		}
	}
	text, err := json.Marshal(members)
	if err == nil {
		err = json.Unmarshal(text, &one.Config)
	}
	if one.IndexingMode == "" {
		one.IndexingMode = wire.Consistent
	}
	if one.EventBody != nil && *one.EventBody {
		one.EventBody = nil
	}
	one.pauses = given["paused"]
	return one, err
}

// memberUse says what a member may be.
func memberUse(member string) string {
	switch member {
	case "defaultTtl":
		return "a whole number of seconds, -1, or null"
	case "indexingMode":
		return "consistent, lazy or none"
	case "minTtl", "maxTtl", "maxLife":
		return "a whole number of seconds"
	case "slideOnRead":
		return "true, false, or a number over 0 and under 1"
	case "warnBefore":
		return "a list of whole numbers of seconds"
	case "indexes":
		return "a list of JSON pointers such as /customer"
	}
	return "true or false"
}
