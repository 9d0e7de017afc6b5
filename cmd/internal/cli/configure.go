package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Configuring is the flags of messages about a collection.
type Configuring struct {
	IfMatch *Etag   `placeholder:"ETAG"`
	MsgID   *Header `name:"msg-id" placeholder:"ID"`
	Asking
}

// Asking is the flag of commands that ask, on a terminal, before they remove documents.
type Asking struct {
	Yes bool `short:"y"`
}

// ask asks a question, unless there is none.
func (a Asking) ask(ctx context.Context, streams output.Streams, question func() (string, error)) error {
	if a.Yes || !streams.Interactive() {
		return nil
	}
	text, err := question()
	if err != nil || text == "" {
		return err
	}
	yes, err := streams.Confirm(ctx, text)
	switch {
	case err != nil:
		return output.Interrupted("nothing is changed")
	case !yes:
		return errors.New("nothing is changed")
	}
	return nil
}

// Config prints or changes the configuration of a collection.
type Config struct {
	Collection string `arg:"" optional:""`
	All        bool
	DefaultTTL *DefaultTTL `name:"default-ttl" placeholder:"off|-1|TIME"`
	Indexing   *string     `enum:"consistent,lazy,none" placeholder:"consistent|lazy|none"`
	MinTTL     *Limit      `name:"min-ttl" placeholder:"TIME|none"`
	MaxTTL     *Limit      `name:"max-ttl" placeholder:"TIME|none"`
	WarnBefore *Warnings   `placeholder:"5m,1h|none"`
	MaxLife    *Limit      `name:"max-life" placeholder:"TIME|none"`
	Slide      *SlidePart  `name:"slide-on-read" negatable:"" placeholder:"PART"`
	EventBody  *bool       `negatable:""`
	Changes    *bool       `negatable:""`
	Indexes    []Pointer   `name:"index" sep:"none" placeholder:"POINTER"`
	NoIndexes  bool        `name:"no-indexes"`
	DryRun     bool
	Configuring
	Connection
}

// Run runs the command.
func (c *Config) Run(ctx context.Context, streams output.Streams) error {
	c.yaml = true
	if err := c.checkNamed(); err != nil {
		return err
	}
	foreseen := c.DefaultTTL != nil || c.MaxLife != nil || c.MinTTL != nil || c.MaxTTL != nil
	others := c.Indexing != nil || c.WarnBefore != nil || c.Slide != nil || c.EventBody != nil || c.Changes != nil ||
		c.Indexes != nil || c.NoIndexes
	changes := foreseen || others
	switch {
	case c.Indexes != nil && c.NoIndexes:
		return output.Usagef("--index and --no-indexes contradict each other: leave out one of them")
	case c.All && (changes || c.DryRun):
		return output.Usagef("--all prints the configurations: name one collection to change it, or use lapse apply")
	case changes && c.Output == "yaml":
		return output.Usagef("--output yaml prints configurations: leave it out, or the flags that change one")
	case c.DryRun && (!foreseen || others || c.IfMatch != nil || c.MsgID != nil):
		return output.Usagef("--dry-run tells what a default TTL and limits would do: use it with --default-ttl, " +
			"--max-life, --min-ttl and --max-ttl alone")
	case !changes && (c.IfMatch != nil || c.MsgID != nil):
		return output.Usagef("--if-match and --msg-id belong to a change: use them with --default-ttl, --indexing or " +
			"another property")
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	switch {
	case c.All:
		return c.showAll(ctx, conn, streams)
	case c.DryRun:
		err = c.dryRun(ctx, conn, streams)
	case changes:
		if err := c.confirm(ctx, conn, streams); err != nil {
			return err
		}
		return c.change(ctx, conn, prefix, streams)
	default:
		err = c.show(ctx, conn, streams)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Collection, err)
	}
	return nil
}

// moves reports whether the change moves deadlines.
func (c *Config) moves() bool { return c.DefaultTTL != nil || c.MaxLife != nil }

// confirm asks before a default TTL or a maxLife that expires documents at once.
func (c *Config) confirm(ctx context.Context, conn *client.Client, streams output.Streams) error {
	if !c.moves() {
		return nil
	}
	return c.ask(ctx, streams, func() (string, error) {
		reply, err := c.forecast(ctx, conn, wire.Config{})
		if errors.Is(err, client.ErrNoCollection) {
			return "", nil
		}
		if err != nil || reply.AtOnce == nil || *reply.AtOnce == 0 {
			return "", err
		}
		return fmt.Sprintf("This expires %s of %s at %s at once, for good. Change it?",
			output.Documents(*reply.AtOnce), c.Collection, conn.Conn().ConnectedUrlRedacted()), nil
	})
}

func (c *Config) show(ctx context.Context, conn *client.Client, streams output.Streams) error {
	config, err := conn.Config(ctx, c.Collection)
	if err != nil {
		return err
	}
	if config.Etag == 0 {
		if err := checkExists(ctx, conn, c.Collection); err != nil {
			return err
		}
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, config)
	}
	if c.Output == "yaml" {
		return writeConfigs(streams.Out, []namedConfig{{Name: c.Collection, Config: config}})
	}
	_, err = fmt.Fprintln(streams.Out, output.Config(c.Collection, config))
	return err
}

// checkNamed returns an error unless either a collection is named, or all are asked for.
func (c *Config) checkNamed() error {
	switch {
	case c.All && c.Collection != "":
		return output.Usagef("name one collection, or use --all for every one")
	case c.All:
		return nil
	case c.Collection == "":
		return output.Usagef("the argument <collection> is missing: name one, or use --all for every one (see lapse " +
			"config --help)")
	}
	return CheckCollection(c.Collection)
}

// showAll prints the configurations of all collections that are configured.
func (c *Config) showAll(ctx context.Context, conn *client.Client, streams output.Streams) error {
	found, err := configured(ctx, conn)
	if err != nil {
		return err
	}
	all, byName := make([]namedConfig, len(found)), make(map[string]wire.Config)
	for i, one := range found {
		config, err := conn.Config(ctx, one.Name)
		if err != nil {
			return fmt.Errorf("%s: %w", one.Name, err)
		}
		all[i] = namedConfig{Name: one.Name, Config: config}
		byName[one.Name] = config.Published()
	}
	switch c.Output {
	case "yaml":
		return writeConfigs(streams.Out, all)
	case "json":
		return output.PrintJSON(streams.Out, byName)
	}
	for _, one := range all {
		if _, err := fmt.Fprintln(streams.Out, output.Config(one.Name, one.Config)); err != nil {
			return err
		}
	}
	return nil
}

// change reads the configuration, changes it, and publishes it with If-Match. If another client has
// changed it in between, change tries again.
func (c *Config) change(ctx context.Context, conn *client.Client, prefix wire.Prefix, streams output.Streams) error {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		config, err := configOf(ctx, conn, c.Collection)
		if err != nil {
			return fmt.Errorf("%s: read the configuration in order to change it: %w", c.Collection, err)
		}
		m := client.Message{Subject: prefix.Config(c.Collection), ID: Text(c.MsgID), IfMatch: Text(c.IfMatch)}
		mayRepeat := config.Etag != 0 && (m.IfMatch == "" || m.IfMatch == "*")
		if mayRepeat {
			m.IfMatch = config.Etag.String()
		}
		config = c.apply(config)
		if m.Body, err = json.Marshal(config); err != nil {
			return err
		}
		result, err := conn.Write(ctx, m)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Collection, err)
		}
		// A second attempt with the same message id would be dropped as a duplicate.
		if result.Outcome.Status == wire.StatusPreconditionFailed && mayRepeat && m.ID == "" && attempt < attempts {
			continue
		}
		return report(&c.Connection, streams, result, c.Collection, func(wire.Outcome) string {
			return "configured " + output.Config(c.Collection, config)
		})
	}
}

// apply returns a configuration with the changes of the flags. It leaves out etag and stamp, which
// are not part of a change.
func (c *Config) apply(now wire.Config) wire.Config {
	config := now.Published()
	if c.Indexing != nil {
		config.IndexingMode = wire.Indexing(*c.Indexing)
	}
	if c.MinTTL != nil {
		config.MinTTL = int32(*c.MinTTL)
	}
	if c.MaxTTL != nil {
		config.MaxTTL = int32(*c.MaxTTL)
	}
	if c.MaxLife != nil {
		config.MaxLife = int32(*c.MaxLife)
	}
	if c.WarnBefore != nil {
		config.WarnBefore = c.WarnBefore.Seconds
	}
	if c.Slide != nil {
		config.SlideOnRead = wire.Slide(*c.Slide)
	}
	if c.Changes != nil {
		config.Changes = *c.Changes
	}
	if c.Indexes != nil || c.NoIndexes {
		config.Indexes = nil
		for _, pointer := range c.Indexes {
			config.Indexes = append(config.Indexes, string(pointer))
		}
	}
	switch {
	case c.EventBody == nil:
	case *c.EventBody:
		config.EventBody = nil
	default:
		config.EventBody = c.EventBody
	}
	if c.DefaultTTL != nil {
		config.DefaultTTL = nil
		if ttlrules.Default(*c.DefaultTTL) != ttlrules.Off {
			config.DefaultTTL = (*int32)(c.DefaultTTL)
		}
	}
	return config
}

// forecast forecasts for a new default TTL and a new maxLife, if there are, and for limits. It is as long as that TTL,
// so it counts every document that inherits it.
func (c *Config) forecast(ctx context.Context, conn *client.Client, limits wire.Config) (wire.ForecastReply, error) {
	request := wire.ForecastRequest{Buckets: wire.DefaultBuckets, Within: wire.DefaultWithin.String(),
		MinTTL: limits.MinTTL, MaxTTL: limits.MaxTTL}
	if c.MaxLife != nil {
		request.MaxLife = (*int32)(c.MaxLife)
	}
	if c.DefaultTTL != nil {
		request.DefaultTTL = json.RawMessage("null")
		if n := ttlrules.Default(*c.DefaultTTL); n != ttlrules.Off {
			request.DefaultTTL = strconv.AppendInt(nil, int64(n), 10)
			if n > 0 {
				request.Within = (time.Duration(n) * time.Second).String()
			}
		}
	}
	return conn.Forecast(ctx, c.Collection, request)
}

// dryRun prints what a new default TTL, a new maxLife and new limits would do.
func (c *Config) dryRun(ctx context.Context, conn *client.Client, streams output.Streams) error {
	var limits wire.Config
	if c.MinTTL != nil || c.MaxTTL != nil {
		config, err := configOf(ctx, conn, c.Collection)
		if err != nil {
			return err
		}
		limits = c.apply(config)
	}
	reply, err := c.forecast(ctx, conn, limits)
	if err != nil {
		return err
	}
	if c.moves() && reply.AtOnce == nil {
		return errors.New("this lapse cannot forecast this change: its version is too old; update the server")
	}
	if (c.MinTTL != nil || c.MaxTTL != nil) && !c.JSON() {
		least, outside := map[bool]string{true: "at least "}[reply.OutsideMore], cmp.Or(reply.Outside, new(int64))
		if _, err := fmt.Fprintf(streams.Out, "%s: %s%d documents do not keep to the limits, and would stay as they are; "+
			"nothing is changed\n", c.Collection, least, *outside); err != nil || !c.moves() {
			return err
		}
	}
	if !c.JSON() {
		what := ""
		if c.DefaultTTL != nil {
			what = " default-ttl=" + output.DefaultTTL(c.apply(wire.Config{}).DefaultTTL)
		}
		if c.MaxLife != nil {
			what += fmt.Sprintf(" max-life=%d", *c.MaxLife)
		}
		if _, err := fmt.Fprintf(streams.Out, "%s%s would expire %d at once; nothing is changed\n", c.Collection, what,
			*reply.AtOnce); err != nil {
			return err
		}
	}
	return printForecast(&c.Connection, streams, reply)
}

// Drop removes a collection.
type Drop struct {
	Collection string `arg:""`
	Configuring
	Connection
}

// Run runs the command.
func (c *Drop) Run(ctx context.Context, streams output.Streams) error {
	if err := CheckCollection(c.Collection); err != nil {
		return err
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	there, err := exists(ctx, conn, c.Collection)
	if err != nil {
		return fmt.Errorf("%s: find out whether the collection exists: %w", c.Collection, err)
	}
	if !there {
		return output.Statusf(wire.StatusNotFound, "collection %s does not exist: there is nothing to drop", c.Collection)
	}
	err = c.ask(ctx, streams, func() (string, error) {
		count, err := conn.Count(ctx, c.Collection)
		return fmt.Sprintf("This removes %s of %s at %s, without expiry events. Drop the collection?",
			output.Documents(count.Live), c.Collection, conn.Conn().ConnectedUrlRedacted()), err
	})
	if err != nil {
		return err
	}
	result, err := conn.Write(ctx, client.Message{Subject: prefix.Drop(c.Collection), ID: Text(c.MsgID),
		IfMatch: Text(c.IfMatch)})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Collection, err)
	}
	if result.Seq != 0 && !result.Duplicate {
		result.Raw = withSeq(result.Raw, result.Seq)
	}
	return report(&c.Connection, streams, result, c.Collection, func(wire.Outcome) string {
		return fmt.Sprintf("dropped %s seq=%d", c.Collection, result.Seq)
	})
}

// withSeq is an outcome with the sequence of its message: it is what "lapse restore --until" takes.
func withSeq(outcome json.RawMessage, seq uint64) json.RawMessage {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(outcome), []byte("{"))
	if !ok {
		return outcome
	}
	return append(fmt.Appendf(nil, `{"seq":%d,`, seq), rest...)
}
