package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// arrange puts flags that nearly every command has, such as --server, behind the command: kong
// takes the flags of a command only there. It returns nil if there is no command.
func arrange(app *kong.Node, args []string) []string {
	if len(args) > 0 && args[0] == "--version" {
		return append([]string{"version"}, args[1:]...)
	}
	n := leading(app, args)
	switch {
	case n == 0 || n < len(args) && strings.HasPrefix(args[n], "-"):
		return args // kong finds what is wrong
	case n < len(args):
		return slices.Concat(args[n:n+1], args[:n], args[n+1:])
	case slices.Contains(args, "--help") || slices.Contains(args, "-h"):
		return []string{"--help"}
	}
	return nil
}

// leading counts the arguments that are flags of every command, with their values, before the
// first one that is something else.
func leading(app *kong.Node, args []string) int {
	for i := 0; i < len(args); i++ {
		name, _, attached := strings.Cut(args[i], "=")
		flag := general(app, name)
		if flag == nil && len(name) > 2 && name[0] == '-' && name[1] != '-' { // -ojson
			flag, attached = general(app, name[:2]), true
		}
		switch {
		case flag == nil:
			return i
		case !attached && !flag.IsBool():
			i++ // its value
		}
	}
	return len(args)
}

// general finds a flag that nearly every command has, by its name with its dashes.
func general(app *kong.Node, name string) *kong.Flag {
	for _, command := range app.Children {
		for _, flag := range slices.Concat(command.AllFlags(false)...) {
			if !ofConnection(flag) && flag.Name != "output" && flag.Name != "help" {
				continue
			}
			names := []string{"--" + flag.Name, "-" + string(flag.Short)}
			for _, alias := range flag.Aliases {
				names = append(names, "--"+alias)
			}
			if slices.Contains(names, name) {
				return flag
			}
		}
	}
	return nil
}

type helpCommand struct {
	Command string `arg:"" optional:"" help:"Command to explain."`
}

// Run prints what --help prints.
func (c helpCommand) Run(parsed *kong.Context) error {
	var args []string
	if c.Command != "" {
		args = []string{c.Command}
	}
	trace, err := kong.Trace(parsed.Kong, args)
	if err == nil {
		err = trace.Error
	}
	if err != nil {
		return output.Usagef("%w (see lapse --help)", err)
	}
	return trace.PrintUsage(false)
}

// connectionName is the group of the flags that nearly every command has, and the hidden command that lists them.
const connectionName = "connection"

// connectionCommand is there for its help, which lists the flags of the connection.
type connectionCommand struct{ Connection }

// Run prints what --help prints.
func (connectionCommand) Run(parsed *kong.Context) error { return parsed.PrintUsage(false) }

// ofConnection reports whether a flag is one of the connection.
func ofConnection(flag *kong.Flag) bool { return flag.Group != nil && flag.Group.Key == connectionName }

// printHelp prints the help, with one line in place of the flags of the connection: every command has the same.
func printHelp(options kong.HelpOptions, parsed *kong.Context) error {
	selected := parsed.Selected()
	if selected == nil || selected.Name == connectionName {
		return kong.DefaultHelpPrinter(options, parsed)
	}
	var hidden []*kong.Flag
	for _, flag := range selected.Flags {
		if ofConnection(flag) && !flag.Hidden {
			flag.Hidden = true
			hidden = append(hidden, flag)
		}
	}
	err := kong.DefaultHelpPrinter(options, parsed)
	for _, flag := range hidden {
		flag.Hidden = false // they are completed, as before
	}
	if err == nil && len(hidden) > 0 {
		_, err = fmt.Fprintln(parsed.Stdout, "\nConnection flags, such as --server and --timeout: see lapse help connection.")
	}
	return err
}

// completeWord is the argument with which a script of a shell asks how a command line may go on.
const completeWord = "__complete"

// completing returns the command that lists the collections, if the next argument of an unfinished
// command line is the name of one, and nil otherwise.
func completing(parser *kong.Kong, line string) []string {
	words := strings.Fields(line)
	if !strings.HasSuffix(line, " ") {
		words = words[:max(0, len(words)-1)] // that is what the shell completes
	}
	if len(words) < 2 {
		return nil
	}
	words = arrange(parser.Model.Node, words[1:])
	trace, err := kong.Trace(parser, words)
	if err != nil || trace.Error != nil || trace.Selected() == nil {
		return nil
	}
	given := 0
	command := []string{"collections", "--names", "--timeout", "2s"}
	for _, path := range trace.Path {
		if path.Positional != nil {
			given++
		}
	}
	if expected := trace.Selected().Positional; given >= len(expected) || expected[given].Name != "collection" {
		return nil
	}
	for rest := words[1:]; len(rest) > 0; {
		n := leading(parser.Model.Node, rest)
		command = append(command, rest[:n]...)
		rest = rest[min(len(rest), n+1):]
	}
	return command
}
