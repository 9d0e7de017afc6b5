package cli

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// helpText has the texts of the help. A section begins with "# " and the name of a command. Its first paragraph is the
// line in the list of commands, and a paragraph of items, each after "* ", is about arguments and flags. All others
// explain the command. The first section has the items that several commands share.
//
//go:embed help.txt
var helpText string

// readHelp reads the sections of helpText: their paragraphs, and their items by name.
func readHelp() (paragraphs map[string][]string, items map[string]map[string]string) {
	paragraphs, items = make(map[string][]string), make(map[string]map[string]string)
	for section := range strings.SplitSeq(strings.TrimPrefix(helpText, "# "), "\n# ") {
		all := strings.Split(strings.TrimSpace(section), "\n\n")
		name := all[0]
		items[name] = make(map[string]string)
		for _, paragraph := range all[1:] {
			list, ok := strings.CutPrefix(paragraph, "* ")
			if !ok {
				paragraphs[name] = append(paragraphs[name], paragraph)
				continue
			}
			for item := range strings.SplitSeq(list, "\n* ") {
				of, text, _ := strings.Cut(item, ": ")
				items[name][of] = strings.Join(strings.Fields(text), " ")
			}
		}
	}
	return paragraphs, items
}

// severalCommands is the section of the items that several commands share.
const severalCommands = "several commands"

// addHelp gives each command, argument and flag its help.
func addHelp(parser *kong.Kong) error {
	paragraphs, items := readHelp()
	for _, command := range parser.Model.Children {
		texts := paragraphs[command.Name]
		if len(texts) == 0 {
			return fmt.Errorf("help.txt has no text about the command %s: add it", command.Name)
		}
		command.Help, command.Detail = strings.ReplaceAll(texts[0], "\n", " "), strings.Join(texts[1:], "\n\n")
		add := func(value *kong.Value, name string) error {
			text, ok := items[command.Name][name]
			if !ok {
				text, ok = items[severalCommands][name]
			}
			if value.Help, value.OrigHelp = text, text; !ok {
				return fmt.Errorf("help.txt has no text about %s of %s: add it", name, command.Name)
			}
			return nil
		}
		for _, argument := range command.Positional {
			if err := add(argument, argument.Name); err != nil {
				return err
			}
		}
		for _, flag := range command.Flags {
			if err := add(flag.Value, "--"+flag.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// helpCommand is the command help.
type helpCommand struct {
	Command string `arg:"" optional:""`
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
