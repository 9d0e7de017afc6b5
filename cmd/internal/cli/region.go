package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Promote makes the region of a server the first.
type Promote struct {
	Connection
	From   string `placeholder:"REGION"`
	DryRun bool
	Force  bool
	Undo   bool
}

// Run runs the command.
func (c *Promote) Run(ctx context.Context, streams output.Streams) error {
	if c.Undo && (c.From != "" || c.Force || c.DryRun) {
		return output.Usagef("--undo takes a promotion back, and goes with none of --from, --force and --dry-run")
	}
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.limit())
	defer cancel()
	if c.Undo {
		if err := processor.UndoPromotion(ctx, conn.Conn(), prefix); err != nil {
			return err
		}
		return c.print(streams, map[string]bool{"undone": true},
			"the promotion is undone: this region follows the other one")
	}
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
	done, err := processor.Promote(ctx, conn.Conn(), prefix, processor.PromoteOptions{
		By: who(), Drain: c.From != "", Force: c.Force, DryRun: c.DryRun,
		Seen: func(ctx context.Context) (processor.SeenRegion, error) { return seen(ctx, conn) },
	})
	if c.DryRun {
		print := printPlan
		if c.JSON() {
			print = func(out io.Writer, done processor.Promoted) error { return output.PrintJSON(out, done.Plan) }
		}
		return cmp.Or(print(streams.Out, done), err)
	}
	if err != nil {
		return err
	}
	for _, text := range done.Plan.Overrides {
		if _, err := fmt.Fprintln(streams.Err, "--force overrides: "+text); err != nil {
			return err
		}
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, done)
	}
	for _, l := range done.Logs {
		text := fmt.Sprintf("%s has everything up to message %d, stored at %s", l.Stream, l.Last,
			l.Stamp.UTC().Format(time.RFC3339Nano))
		if c.From == "" {
			text += "; writes that the other region has acknowledged behind it are lost"
		}
		if _, err := fmt.Fprintln(streams.Out, text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(streams.Out, "promoted in %s: the region in the JetStream domain %q is the first\n",
		time.Since(began).Round(time.Millisecond), done.Domain)
	return err
}

// printPlan prints the steps of a promotion that are not done, and what --force overrides. The error of the command is
// why it is refused.
func printPlan(out io.Writer, done processor.Promoted) error {
	text := ""
	for _, s := range done.Plan.Steps {
		if !s.Done {
			text += "would " + s.Do + "\n"
		}
	}
	for _, o := range done.Plan.Overrides {
		text += "--force overrides: " + o + "\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// seen is what the processes of a region say by their entries in the bucket of members.
func seen(ctx context.Context, conn *client.Client) (s processor.SeenRegion, err error) {
	state, err := conn.Status(ctx)
	if err != nil {
		return s, err
	}
	for _, m := range state.Members {
		if m.Role == client.RoleGone {
			continue
		}
		s.Running = true
		if m.Role != client.RoleOwner {
			continue
		}
		s.Following = wire.Further(s.Following, m.Following)
		if m.AwaitsPromotion {
			s.Stopped = append(s.Stopped, m.Problem)
		} else if m.Problem != "" {
			s.Problems = append(s.Problems, m.Problem)
		}
	}
	for _, shard := range state.Shards {
		if s.Running && !shard.Alive {
			s.Problems = append(s.Problems, fmt.Sprintf("shard %d has no owner", shard.Shard))
		}
	}
	return s, nil
}

// promoteLimit is for how long the mirrors may take to get what they lack, unless --timeout allows more.
const promoteLimit = 2 * time.Minute

func (c *Promote) limit() time.Duration { return max(time.Duration(c.Timeout), promoteLimit) }

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

// Demote makes a region ready to follow another one.
type Demote struct {
	Connection
	First string `placeholder:"DOMAIN"`
	Save  string `placeholder:"FILE"`
}

// Run runs the command.
func (c *Demote) Run(ctx context.Context, streams output.Streams) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	state, err := conn.Status(ctx)
	if err != nil {
		return err
	}
	for _, m := range state.Members {
		if m.SeenAgo < goneAfter.Seconds() {
			return fmt.Errorf("the process %s of lapse runs here, and was seen %s ago: stop it first, and wait %s",
				output.Name(m.Name), output.Seconds(m.SeenAgo), goneAfter)
		}
	}
	var save func() (io.WriteCloser, error)
	if c.Save != "" {
		save = func() (io.WriteCloser, error) {
			f, err := os.OpenFile(c.Save, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return nil, fmt.Errorf("--save: %w", err)
			}
			return synced{f}, nil
		}
	}
	n, err := processor.Demote(ctx, conn.Conn(), prefix, c.First, save)
	if err != nil {
		return err
	}
	text := "removed the streams; the first region has everything that was in the log here"
	if n > 0 {
		text = fmt.Sprintf("removed the streams; %d messages that the first region does not have are in %s", n, c.Save)
	}
	return c.print(streams, map[string]any{"saved": n}, "%s", text)
}

// goneAfter is since when a process that runs must have been seen.
const goneAfter = 10 * time.Second

// synced is a file that is on the disk when it is closed.
type synced struct{ *os.File }

func (s synced) Close() error {
	err := s.Sync()
	if closeErr := s.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

// ForgetFollower makes a region forget one that has followed it.
type ForgetFollower struct {
	Connection
	Region string `arg:""`
}

// Run runs the command.
func (c *ForgetFollower) Run(ctx context.Context, streams output.Streams) error {
	conn, prefix, err := c.Connect(streams)
	if err != nil {
		return err
	}
	defer conn.Close()
	known, err := processor.ForgetFollower(ctx, conn.Conn(), prefix, c.Region)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("forgot the region %q", c.Region)
	if !known {
		text = fmt.Sprintf("no region %q is remembered", c.Region)
	}
	return c.print(streams, map[string]bool{"forgotten": known}, "%s", text)
}
