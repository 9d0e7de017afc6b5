package cli

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"

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
	Serve          serveCommand      `cmd:"" group:"serve"`
	Demo           demoCommand       `cmd:"" group:"serve"`
	Health         Health            `cmd:"" group:"serve"`
	Version        versionCommand    `cmd:"" group:"serve"`
	Backup         Backup            `cmd:"" group:"serve"`
	Restore        Restore           `cmd:"" group:"serve"`
	BeginAnew      beginAnewCommand  `cmd:"" group:"serve"`
	Promote        Promote           `cmd:"" group:"serve"`
	ForgetFollower ForgetFollower    `cmd:"" group:"serve"`
	Demote         Demote            `cmd:"" group:"serve"`
	Completion     completionCommand `cmd:"" group:"serve"`
	Help           helpCommand       `cmd:"" group:"serve"`
	Connection     connectionCommand `cmd:"" hidden:""`

	Config      Config      `cmd:"" group:"configure"`
	Drop        Drop        `cmd:"" group:"configure"`
	Apply       Apply       `cmd:"" group:"configure"`
	Pause       Pause       `cmd:"" group:"configure"`
	Resume      Resume      `cmd:"" group:"configure"`
	Collections Collections `cmd:"" group:"configure"`

	Put      documentWrite `cmd:"" group:"write"`
	Create   documentWrite `cmd:"" group:"write" without:"keep-clock"`
	Replace  documentWrite `cmd:"" group:"write"`
	Schedule Schedule      `cmd:"" group:"write"`
	Patch    documentWrite `cmd:"" group:"write" without:"ttl,not-after,target"`
	Touch    selectedWrite `cmd:"" group:"write" without:"keep-clock"`
	Delete   selectedWrite `cmd:"" group:"write" without:"keep-clock,clock,expires-at"`
	Import   Import        `cmd:"" group:"write"`

	Get      Get      `cmd:"" group:"read"`
	List     List     `cmd:"" group:"read"`
	Export   Export   `cmd:"" group:"read"`
	Count    Count    `cmd:"" group:"read"`
	Forecast Forecast `cmd:"" group:"read"`
	Watch    Watch    `cmd:"" group:"read"`
	Forward  Forward  `cmd:"" group:"read"`
	Archive  Archive  `cmd:"" group:"read"`
	Status   Status   `cmd:"" group:"read"`
	Snapshot Snapshot `cmd:"" group:"read"`

	Forgotten Forgotten `cmd:"" group:"read"`
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
	return kong.New(&commandLine{},
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
		kong.PostBuild(dropFlags),
		kong.PostBuild(addHelp),
		Vars,
	)
}

// dropFlags takes from each command the flags that it lacks.
func dropFlags(parser *kong.Kong) error {
	for _, command := range parser.Model.Children {
		lacks := strings.Split(command.Tag.Get("without"), ",")
		command.Flags = slices.DeleteFunc(command.Flags, func(flag *kong.Flag) bool {
			return slices.Contains(lacks, flag.Name)
		})
	}
	return nil
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
