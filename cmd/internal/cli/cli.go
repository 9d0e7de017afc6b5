package cli

import (
	"context"
	"errors"
	"os"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

const description = `JSON documents that expire, and an event the moment each one does.

To look around, run "lapse demo". To begin, run "lapse serve" in one terminal. In another one:

    lapse config orders --default-ttl 5
    lapse put orders 42 '{"item":"tea"}'
    lapse watch orders --since 1h

` + output.ExitCodes

// commandLine has more than 15 fields: kong takes one for each command.
type commandLine struct {
	Serve          serveCommand      `cmd:"" group:"serve" help:"Run lapse: apply writes, publish expiry events, answer reads."`
	Demo           demoCommand       `cmd:"" group:"serve" help:"Run a lapse of its own in which documents come and go, to look at."`
	Health         Health            `cmd:"" group:"serve" help:"Ask a running lapse whether it is ready, for health checks."`
	Version        versionCommand    `cmd:"" group:"serve" help:"Print the version, as does --version."`
	Backup         Backup            `cmd:"" group:"serve" help:"Write everything that lapse keeps in NATS into one file, while lapse runs."`
	Restore        Restore           `cmd:"" group:"serve" help:"Restore a backup into empty servers, as it was, or until a moment before a mistake."`
	BeginAnew      beginAnewCommand  `cmd:"" group:"serve" help:"Show what lapse refuses to go on without, or give it up, while no lapse runs."`
	Promote        Promote           `cmd:"" group:"serve" help:"Make this region, which follows another one, the first."`
	ForgetFollower ForgetFollower    `cmd:"" group:"serve" help:"Forget a region that has followed this one."`
	Demote         Demote            `cmd:"" group:"serve" help:"Make a region that was the first ready to follow the one that was promoted."`
	Completion     completionCommand `cmd:"" group:"serve" help:"Print a script that completes this command line in a shell."`
	Help           helpCommand       `cmd:"" group:"serve" help:"Print the help of a command, as does --help."`
	Connection     connectionCommand `cmd:"" hidden:"" help:"The flags of the connection, which every client command has."`

	Config      Config      `cmd:"" group:"configure" help:"Print a collection's configuration, or change it."`
	Drop        Drop        `cmd:"" group:"configure" help:"Remove a collection and its documents, without expiry events."`
	Apply       Apply       `cmd:"" group:"configure" help:"Give collections the configurations that a file has."`
	Pause       Pause       `cmd:"" group:"configure" help:"Hold back what expires in a collection: no event, nothing removed."`
	Resume      Resume      `cmd:"" group:"configure" help:"Publish what was held back, and go on."`
	Collections Collections `cmd:"" group:"configure" help:"Print the collections, with their configurations and counts."`

	Put      Put      `cmd:"" group:"write" help:"Create a document, or replace it if it exists (upsert)."`
	Create   Create   `cmd:"" group:"write" help:"Create a document; it must not exist."`
	Replace  Replace  `cmd:"" group:"write" help:"Replace a document; it must exist."`
	Schedule Schedule `cmd:"" group:"write" help:"Create a message that is delivered at its time."`
	Patch    Patch    `cmd:"" group:"write" help:"Change a document by a JSON merge patch (RFC 7396)."`
	Touch    Touch    `cmd:"" group:"write" help:"Start a document's time to live again."`
	Delete   Delete   `cmd:"" group:"write" help:"Remove a document, without an expiry event."`
	Import   Import   `cmd:"" group:"write" help:"Write many documents, one on each line (NDJSON)."`

	Get      Get      `cmd:"" group:"read" help:"Print a document."`
	List     List     `cmd:"" group:"read" help:"Print the documents of a collection, in pages."`
	Export   Export   `cmd:"" group:"read" help:"Print all documents of a collection, one on each line (NDJSON)."`
	Count    Count    `cmd:"" group:"read" help:"Count the documents of a collection."`
	Forecast Forecast `cmd:"" group:"read" help:"Count the documents that will expire, over time."`
	Watch    Watch    `cmd:"" group:"read" help:"Print expiry events as they come."`
	Forward  Forward  `cmd:"" group:"read" help:"Post events to a receiver on the web, as signed webhooks."`
	Archive  Archive  `cmd:"" group:"read" help:"Write events into compressed files."`
	Status   Status   `cmd:"" group:"read" help:"Print which streams and processes of lapse a server has, and their state."`
	Snapshot Snapshot `cmd:"" group:"read" help:"Let lapse take a snapshot of every shard now."`

	Forgotten Forgotten `cmd:"" group:"read" help:"Say whether any byte of a document that is gone is left, and where."`
}

var groups = []kong.Group{
	{Key: "serve", Title: "Server"},
	{Key: "configure", Title: "Collections"},
	{Key: "write", Title: "Writes: each waits until lapse has applied it, and prints the outcome"},
	{Key: "read", Title: "Reads and events"},
	{Key: "accept", Title: "What is given up: nothing without a flag"},
	{Key: connectionName, Title: "Connection"},
	{Key: "servers", Title: "NATS and Redis: embedded, unless you give a URL"},
	{Key: "embedded", Title: "Embedded servers"},
	{Key: "log", Title: "Log and events: of existing streams, only what you give is changed"},
	{Key: "region", Title: "Regions"},
	{Key: "http", Title: "HTTP"},
	{Key: "process", Title: "Process"},
}

// newParser makes the parser of the command line. It calls helped when it has printed the help.
func newParser(ctx context.Context, streams output.Streams, helped func(int)) (*kong.Kong, error) {
	release, _, _ := version()
	parser, err := kong.New(&commandLine{},
		kong.Name("lapse"),
		kong.Description(description),
		kong.Exit(helped),
		kong.Writers(streams.Out, streams.Err),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups(groups),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams),
		kong.Bind(Version(release)),
		kong.NamedMapper("existingfile", kong.MapperFunc(decodeFile)),
		kong.KindMapper(reflect.Int, kong.MapperFunc(decodeInt)),
		Vars,
	)
	if err == nil {
		addExamples(parser.Model.Node)
	}
	return parser, err
}

// Run runs the command that the arguments give, until it ends or ctx is done. It returns
// the exit code of the process.
func Run(ctx context.Context, args []string, streams output.Streams) int {
	streams = streams.Screens()
	helped := false // kong goes on parsing after it has printed the help
	parser, err := newParser(ctx, streams, func(int) { helped = true })
	if err != nil {
		output.Fail(streams, err, false)
		return output.ExitOther
	}
	asJSON := asksForJSON(args, os.Getenv("LAPSE_OUTPUT"))
	if len(args) == 2 && args[0] == completeWord {
		unfinished, err := newParser(ctx, streams, func(int) {})
		if err != nil {
			return output.ExitOther
		}
		if args = completing(unfinished, args[1]); args == nil {
			return 0
		}
	}
	if args = arrange(parser.Model.Node, args); len(args) == 0 {
		err := output.Usagef(`no command is given: "lapse --help" lists the commands, "lapse serve" starts lapse`)
		output.Fail(streams, err, asJSON)
		return output.ExitCode(err)
	}
	parsed, err := parser.Parse(args)
	if helped {
		return 0
	}
	var command *kong.Node
	if err == nil {
		command, asJSON = parsed.Selected(), wantsJSON(parsed)
		err = interrupted(ctx, parsed.Run())
	} else {
		command = selected(err)
		err = parseError(err)
	}
	if err == nil {
		return 0
	}
	if command != nil && command.Name == "serve" {
		output.Fail(streams, err, false)
		if errors.As(err, new(contradiction)) {
			return output.ExitUsage
		}
		return output.ExitOther
	}
	output.Fail(streams, err, asJSON)
	return output.ExitCode(err)
}
