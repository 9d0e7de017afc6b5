package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
)

type beginAnewCommand struct {
	LogEnd       bool `name:"accept-lost-log-end" group:"accept"`
	LogBeginning bool `name:"accept-lost-log-beginning" group:"accept"`
	LogMessages  bool `name:"accept-lost-log-messages" group:"accept"`
	Documents    bool `name:"accept-lost-documents" group:"accept"`
	Events       bool `name:"accept-lost-events" group:"accept"`
	RedisIsSaved bool `name:"redis-is-saved" group:"accept"`
	PlaceFlags
}

func (c *beginAnewCommand) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	if err := contradict(parsed.Selected().Flags, parsed.Path); err != nil {
		return err
	}
	prefix, err := c.checkPlace()
	if err != nil {
		return output.Usage(err)
	}
	done, left, err := serve.BeginAnew(ctx, serve.Options{
		Logger: slog.New(slog.NewTextHandler(streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
		NATS:   c.NATS, NATSLogin: c.NATSLogin.Credentials(), Data: c.Data,
		Redis:     redisconn.Options{URL: c.Redis, Login: c.RedisLogin.Credentials()},
		Processor: processor.Options{Prefix: prefix, Shards: c.Shards},
	}, c.accepted())
	for _, text := range done {
		if _, err := fmt.Fprintln(streams.Out, text); err != nil {
			return err
		}
	}
	for _, why := range left {
		streams.Warn("refused: " + output.OneLine(why))
	}
	restore := "restore what is missing, or give it up with the flags that are named (" +
		health.Runbook("give-up-what-is-missing") + ")"
	switch {
	case err != nil:
		return err
	case len(left) > 0 && len(done) == 0:
		return fmt.Errorf("%d refused, and nothing was changed: %s", len(left), restore)
	case len(left) > 0:
		return fmt.Errorf("%d still refused: %s", len(left), restore)
	case len(done) == 0:
		_, err = fmt.Fprintln(streams.Out, "nothing is refused, and nothing was changed: start lapse")
	}
	return err
}

// accepted is what the flags give up.
func (c *beginAnewCommand) accepted() processor.Accepted {
	a := processor.Accepted{RedisIsSaved: c.RedisIsSaved}
	for i, given := range []bool{c.LogEnd, c.LogBeginning, c.LogMessages, c.Documents, c.Events} {
		if given {
			a.Losses = append(a.Losses, processor.Losses[i])
		}
	}
	return a
}
