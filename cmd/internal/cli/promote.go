package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/processor"
)

// Promote makes the region of a server the first.
type Promote struct {
	Connection
	From  string `placeholder:"REGION" help:"Let the first region hand over, so that nothing is lost: its JetStream domain, or the URL of one of its NATS servers."`
	Force bool   `help:"Promote although the first region answers, and give up what it has not sent yet."`
}

// Help implements [kong.HelpProvider].
func (Promote) Help() string {
	return `The region of --server follows another one (lapse serve --follow). With --from the other region
stops taking writes, this one waits until it has all of them, and goes on: nothing is lost. Without
--from the first region must be lost or stopped: what it had acknowledged and not sent yet is lost, and the
command says from which message on. The processes of lapse here go on by themselves as those of
the first region. The other region refuses to be that when it comes back.

If the command fails, run it again: it goes on where it was.`
}

// Run runs the command.
func (c *Promote) Run(ctx context.Context, streams output.Streams) error {
	if c.From != "" && c.Force {
		return output.Usagef("--from and --force contradict each other: with --from the first region hands over")
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, max(time.Duration(c.Timeout), promoteLimit))
	defer cancel()
	if c.From != "" {
		_, login, _, err := c.where()
		if err != nil {
			return err
		}
		domain, err := processor.Follows(ctx, c.From, func(url string) (*nats.Conn, error) {
			options, err := login.Options(url)
			if err != nil {
				return nil, err
			}
			return nats.Connect(url, options...)
		})
		if err != nil {
			return fmt.Errorf("--from %s: %w", c.From, err)
		}
		if follows := processor.FollowsAlready(ctx, conn.Conn(), prefix); follows != "" && follows != domain {
			return output.Usagef("--from %s is the JetStream domain %q, and this region follows %q", c.From, domain, follows)
		}
	}
	began := time.Now()
	done, err := processor.Promote(ctx, conn.Conn(), prefix, who(), c.From != "", c.Force)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, done)
	}
	for _, l := range done.Logs {
		text := fmt.Sprintf("%s has everything up to message %d, stored at %s", l.Stream, l.Last, l.Stamp.UTC().Format(time.RFC3339Nano))
		if c.From == "" {
			text += "; writes that the other region has acknowledged behind it are lost"
		}
		if _, err := fmt.Fprintln(streams.Out, text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(streams.Out, "promoted in %s: the region in the JetStream domain %q is the first\n", time.Since(began).Round(time.Millisecond), done.Domain)
	return err
}

// promoteLimit is for how long the mirrors may take to get what they lack.
const promoteLimit = 2 * time.Minute

// who names the person for the other region.
func who() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
