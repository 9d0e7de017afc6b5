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
)

type beginAnewCommand struct {
	Token string `arg:"" help:"Token that the refusal names."`
	PlaceFlags
}

// Help implements [kong.HelpProvider].
func (beginAnewCommand) Help() string {
	return `lapse refuses to go on where acknowledged writes or events are missing. /readyz and the log of lapse then
say what is missing, how it can be restored, and a token. If it cannot be restored, stop every process of
lapse, and give it up with this command: lapse begins again from the log as it is, or goes on without
events, or messages of the log, that were lost. The refusal says which. Then start lapse.

Give the flags and variables with which lapse serve runs. What Redis holds is kept until lapse has been
rebuilt. If the command is interrupted, run it again.`
}

func (c *beginAnewCommand) Run(ctx context.Context, parsed *kong.Context, streams output.Streams) error {
	if err := contradict(parsed.Selected().Flags, parsed.Path); err != nil {
		return err
	}
	prefix, err := c.checkPlace()
	if err != nil {
		return output.Usage(err)
	}
	done, refused, err := serve.BeginAnew(ctx, serve.Options{
		Logger: slog.New(slog.NewTextHandler(streams.Err, &slog.HandlerOptions{Level: slog.LevelWarn})),
		NATS:   c.NATS, NATSLogin: c.NATSLogin.Credentials(), Data: c.Data,
		Redis:     redisconn.Options{URL: c.Redis, Login: c.RedisLogin.Credentials()},
		Processor: processor.Options{Prefix: prefix, Shards: c.Shards},
	}, c.Token)
	for _, text := range done {
		if _, err := fmt.Fprintln(streams.Out, text); err != nil {
			return err
		}
	}
	for _, why := range refused {
		streams.Warn("still refused: " + output.OneLine(why))
	}
	return err
}
