package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/backup"
	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/sink/client"

	"github.com/seed18712806/lapse/sink/wire"
)

// Version is the version of lapse.
type Version string

const backupProgressEvery = time.Second

// where is the server of a backup or a restore.
type where struct {
	Data     string `group:"connection" placeholder:"DIR"`
	Progress bool
	Connection
}

// connect opens the directory or connects to the server. applying reports whether a process of
// lapse runs there.
func (w *where) connect(
	ctx context.Context, streams output.Streams,
) (nc *nats.Conn, applying func(context.Context) (bool, error), closed func(), err error) {
	if w.Data != "" {
		nc, closed, err := serve.Offline(ctx, w.Data)
		return nc, func(context.Context) (bool, error) { return false, nil }, closed, err
	}
	conn, _, err := w.Connect(streams)
	if err != nil {
		return nil, nil, nil, err
	}
	applying = func(ctx context.Context) (bool, error) {
		found, err := conn.Status(ctx)
		if errors.Is(err, client.ErrUnavailable) { // there is no log
			return false, nil
		}
		for _, m := range found.Members {
			if m.Role != client.RoleGone {
				return true, err
			}
		}
		return false, err
	}
	return conn.Conn(), applying, conn.Close, nil
}

// shown shows the progress of an action.
func (w *where) shown(streams output.Streams) (progress func(string), end func()) {
	var text atomic.Value
	text.Store("beginning")
	p := output.StartProgress(streams, w.Progress, backupProgressEvery, func() string { return text.Load().(string) })
	return func(s string) { text.Store(s) }, p.End
}

// Backup writes a backup, or verifies one.
type Backup struct {
	File   string `arg:""`
	Force  bool
	Verify bool
	where
}

// Run runs the command.
func (c *Backup) Run(ctx context.Context, streams output.Streams, lapse Version) error {
	if c.Verify {
		return c.verify(ctx, streams)
	}
	prefix, err := wire.ParsePrefix(c.Prefix)
	if err != nil {
		return output.Usage(err)
	}
	if err := c.mayWrite(); err != nil {
		return err
	}
	nc, applying, closed, err := c.connect(ctx, streams)
	if err != nil {
		return err
	}
	defer closed()
	out, finish, err := createBackup(c.File, streams)
	if err != nil {
		return err
	}
	progress, end := c.shown(streams)
	source := backup.Source{NATS: nc, Prefix: prefix, Lapse: string(lapse), Applying: applying, Progress: progress}
	contents, err := backup.Take(ctx, source, out)
	end()
	if err != nil && ctx.Err() != nil {
		err = output.Interrupted("the backup is not complete: run the command again")
	}
	if err == nil {
		err = c.mayWrite() // somebody may have made the file meanwhile
	}
	if err = finish(err); err != nil || c.File == "-" {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, contents)
	}
	if _, err := fmt.Fprintf(streams.Out, "backed up %s to %s: %s, %s\n", contents.Prefix, c.File,
		output.Bytes(uint64(contents.Bytes)), numberOf(contents.Shards, "shard")); err != nil {
		return err
	}
	return printStreams(streams.Out, contents)
}

// mayWrite returns an error if the file exists, and is not to be overwritten.
func (c *Backup) mayWrite() error {
	if c.Force || c.File == "-" {
		return nil
	}
	if _, err := os.Lstat(c.File); err != nil {
		return nil // creating the file finds what else is wrong
	}
	return output.Statusf(wire.StatusConflict, "%s exists: use another name, or --force to overwrite it", c.File)
}

// createBackup creates a file under a temporary name. finish gives it its name, if all went well.
func createBackup(name string, streams output.Streams) (out io.Writer, finish func(error) error, err error) {
	if name == "-" {
		return streams.Out, func(err error) error {
			if err != nil {
				return output.Printed(err) // standard output has a part of the backup, and nothing else
			}
			return nil
		}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return nil, nil, err
	}
	return f, func(err error) error {
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			return errors.Join(err, os.Remove(f.Name()))
		}
		return syncDir(filepath.Dir(name))
	}, nil
}

// syncDir makes the new name of a file survive a power loss, where the system can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // some file systems refuse it
	return d.Close()
}

func (c *Backup) verify(ctx context.Context, streams output.Streams) error {
	in, closed, err := openBackup(ctx, c.File, streams, false)
	if err != nil {
		return err
	}
	defer closed()
	contents, err := backup.Scan(in, backup.Until{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if c.JSON() {
		return output.PrintJSON(streams.Out, contents)
	}
	return printBackup(streams.Out, contents)
}

// Restore restores a backup.
type Restore struct {
	File     string `arg:""`
	Until    string `placeholder:"SEQ|TIME"`
	Replicas int    `placeholder:"N"`
	Paused   bool
	where
}

// Run runs the command.
func (c *Restore) Run(ctx context.Context, streams output.Streams) error {
	until, err := parseUntil(c.Until)
	if err != nil {
		return err
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		return output.Usagef("--replicas %d is not valid: use 1 to 5", c.Replicas)
	}
	in, closed, err := openBackup(ctx, c.File, streams, true)
	if err != nil {
		return err
	}
	defer closed()
	contents, err := backup.Scan(in, until)
	if ctx.Err() != nil {
		return errNotRestored
	}
	if err != nil {
		return fmt.Errorf("%s: %w. Nothing is changed", c.File, err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	c.Prefix = string(contents.Prefix)
	nc, applying, closed, err := c.connect(ctx, streams)
	if err != nil {
		return err
	}
	defer closed()
	progress, end := c.shown(streams)
	err = contents.Restore(ctx, backup.Target{NATS: nc, Replicas: c.Replicas, Paused: c.Paused, Applying: applying,
		Progress: progress}, in, until)
	end()
	if err != nil && err == ctx.Err() { // by itself: nothing is left of the restore
		return errNotRestored
	}
	if err != nil {
		return err
	}
	next := map[bool]string{true: ". All collections are paused: look at them, and run lapse resume"}[c.Paused]
	return c.print(streams, contents.Header, "restored %s. Start lapse with an empty Redis%s", contents.Prefix, next)
}

var errNotRestored = output.Interrupted("nothing is restored: run the command again")

func parseUntil(text string) (u backup.Until, err error) {
	if text == "" {
		return u, nil
	}
	if u.Seq, err = strconv.ParseUint(text, 10, 64); err == nil && u.Seq > 0 {
		return u, nil
	}
	var at Instant
	if at.UnmarshalText([]byte(text)) != nil || at.Now {
		return u, output.Usagef("--until %q is not valid: use the sequence of a message, an instant such as "+
			"2026-01-31T12:00:00Z, or how long ago, such as 90s, 12h or 7d", text)
	}
	return backup.Until{Time: at.Time}, nil
}

// openBackup opens a backup. Standard input, if it is to be read again, goes to a temporary file first.
func openBackup(
	ctx context.Context, name string, streams output.Streams, again bool,
) (in io.ReadSeeker, closed func(), err error) {
	if name != "-" {
		f, err := os.Open(name)
		return &interruptible{ctx: ctx, ReadSeeker: f}, func() { _ = f.Close() }, err
	}
	streams.NoticeTerminal("a backup")
	if !again {
		return &interruptible{ctx: ctx, ReadSeeker: onlyOnce{streams.In}}, func() {}, nil
	}
	f, err := os.CreateTemp("", "lapse-restore-")
	if err != nil {
		return nil, nil, err
	}
	closed = func() { _ = f.Close(); _ = os.Remove(f.Name()) }
	if _, err = io.Copy(f, &interruptible{ctx: ctx, ReadSeeker: onlyOnce{streams.In}}); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if ctx.Err() != nil {
		err = errNotRestored
	}
	if err != nil {
		closed()
	}
	return f, closed, err
}

// onlyOnce is an input that cannot be read a second time, such as a pipe.
type onlyOnce struct{ io.Reader }

func (onlyOnce) Seek(int64, int) (int64, error) { return 0, errors.ErrUnsupported }

// interruptible ends when ctx is done, although a read of a terminal or a pipe cannot be ended:
// that goes on in a goroutine, until the end of the process.
type interruptible struct {
	ctx context.Context
	io.ReadSeeker
	buffer []byte
}

func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	if len(i.buffer) < len(b) {
		i.buffer = make([]byte, len(b))
	}
	type result struct {
		n   int
		err error
	}
	read := make(chan result, 1)
	go func() {
		n, err := i.ReadSeeker.Read(i.buffer[:len(b)])
		read <- result{n, err}
	}()
	select {
	case r := <-read:
		return copy(b, i.buffer[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, i.ctx.Err()
	}
}

// numberOf is a number with its noun.
func numberOf(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// printBackup prints what a backup has.
func printBackup(out io.Writer, c *backup.Contents) error {
	_, err := fmt.Fprintf(out, "a backup of %s, %s, taken at %s by lapse %s\n", c.Prefix, numberOf(c.Shards, "shard"),
		wire.Time(c.Taken.UnixMilli()), c.Lapse)
	if err == nil {
		err = printStreams(out, c)
	}
	if err == nil {
		_, err = fmt.Fprintln(out, "the backup is whole")
	}
	return err
}

// printStreams prints what a backup has of each stream.
func printStreams(out io.Writer, c *backup.Contents) error {
	for _, s := range c.Streams {
		if _, err := fmt.Fprintf(out, "%s messages=%d first=%d last=%d\n", s.Name, s.Messages, s.First, s.Last); err != nil {
			return err
		}
	}
	return nil
}
