// Package cli is the command line of lapse: it maps flags, arguments and
// environment to the options of packages serve and client, and their results to
// text or JSON.
//
// [Run] is the whole of it. Each command is a type with its flags and a method
// Run, in the file of its kind: serve.go, write.go, read.go, watch.go. What goes
// wrong is one line on standard error and exit code 1, a bad flag included.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Streams are the standard streams of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

const description = `Documents that expire, and say so the moment they do.

Start "lapse serve" and use it from any NATS client, or with the commands below.`

type commands struct {
	Serve   serveCommand   `cmd:"" group:"serve" help:"Run lapse: apply writes, send expiry events, answer reads."`
	Version versionCommand `cmd:"" group:"serve" help:"Print the version."`

	Config   configCommand   `cmd:"" group:"configure" help:"Show a collection's configuration, or set it."`
	Drop     dropCommand     `cmd:"" group:"configure" help:"Remove a collection and its documents, without expiry events."`
	Put      putCommand      `cmd:"" group:"write" help:"Create a document, or replace it if it is there (upsert)."`
	Create   createCommand   `cmd:"" group:"write" help:"Create a document that is not there."`
	Replace  replaceCommand  `cmd:"" group:"write" help:"Replace a document that is there."`
	Patch    patchCommand    `cmd:"" group:"write" help:"Change a document by a JSON merge patch (RFC 7396)."`
	Touch    touchCommand    `cmd:"" group:"write" help:"Start a document's time to live anew."`
	Delete   deleteCommand   `cmd:"" group:"write" help:"Remove a document, without an expiry event."`
	Get      getCommand      `cmd:"" group:"read" help:"Print a document."`
	List     listCommand     `cmd:"" group:"read" help:"Print the documents of a collection, in pages."`
	Count    countCommand    `cmd:"" group:"read" help:"Count the documents of a collection."`
	Forecast forecastCommand `cmd:"" group:"read" help:"Count the documents that will expire, over time."`
	Watch    watchCommand    `cmd:"" group:"read" help:"Print expiry events as they come."`
}

var groups = []kong.Group{
	{Key: "serve", Title: "Server"},
	{Key: "configure", Title: "Collections"},
	{Key: "write", Title: "Writes: each waits until it is applied, and prints its outcome"},
	{Key: "read", Title: "Reads and events"},
	{Key: "connection", Title: "Connection"},
	{Key: "servers", Title: "NATS and Redis: embedded, unless a URL is given"},
	{Key: "embedded", Title: "Embedded servers"},
	{Key: "log", Title: "Log and events: of existing streams, only what is given is changed"},
	{Key: "process", Title: "Process"},
}

// errSilent ends a command with exit code 1 when it has said already why.
var errSilent = errors.New("failed")

// Run runs the command that the arguments give, until it is done or ctx is. It
// returns the process's exit code: 0, or 1 after one line on standard error.
func Run(ctx context.Context, args []string, streams Streams) int {
	fail := func(err error) int {
		if !errors.Is(err, errSilent) {
			_, _ = fmt.Fprintln(streams.Err, "lapse: "+oneLine(err))
		}
		return 1
	}
	helped := false // --help has been answered; kong goes on parsing after it
	parser, err := kong.New(&commands{},
		kong.Name("lapse"),
		kong.Description(description),
		kong.Exit(func(int) { helped = true }),
		kong.Writers(streams.Out, streams.Err),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups(groups),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams),
		vars,
	)
	if err != nil {
		return fail(err)
	}
	if len(args) == 0 {
		return fail(errors.New(`which command? "lapse --help" lists them, "lapse serve" starts it`))
	}
	parsed, err := parser.Parse(args)
	if helped {
		return 0
	}
	if err != nil {
		return fail(fmt.Errorf("%w (see %s --help)", err, commandOf(err)))
	}
	if err := parsed.Run(); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("interrupted: %w", err)
		}
		return fail(err)
	}
	return 0
}

// commandOf is the command that a parse error is about.
func commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
		return parse.Context.Selected().FullPath()
	}
	return "lapse"
}

// oneLine puts an error on one line: errors that were joined have several.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
