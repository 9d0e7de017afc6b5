package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
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

// parseError makes an error of kong a message to the user, which names the help to read.
func parseError(err error) error {
	command := "lapse"
	if node := selected(err); node != nil {
		command = node.FullPath()
		if flag := missingValue(err); flag != "" {
			err = fmt.Errorf("%s: a value is missing", flag)
		} else if missing := missingArgument(err); missing != "" {
			err = fmt.Errorf("the argument <%s> is missing", missing)
		}
	}
	return output.Usagef("%w (see %s --help)", err, command)
}

// selected is the command that a parse error is about; nil if it is not known.
func selected(err error) *kong.Node {
	var parse *kong.ParseError
	if errors.As(err, &parse) && parse.Context != nil {
		return parse.Context.Selected()
	}
	return nil
}

// missingArgument is the first required argument that is missing; "" if the error is about
// something else.
func missingArgument(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context.Error != nil {
		return ""
	}
	given := make(map[*kong.Positional]bool)
	for _, path := range parse.Context.Path {
		given[path.Positional] = true
	}
	for _, arg := range parse.Context.Selected().Positional {
		if arg.Required && !given[arg] {
			return arg.Name
		}
	}
	return ""
}

// missingValue is the flag that ends the arguments, if it lacks its value; "" otherwise.
func missingValue(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || len(parse.Context.Args) == 0 || slices.Contains(parse.Context.Args, "--") {
		return ""
	}
	last := parse.Context.Args[len(parse.Context.Args)-1]
	for _, flag := range parse.Context.Selected().Flags {
		if !flag.IsBool() && (last == "--"+flag.Name || flag.Short != 0 && last == "-"+string(flag.Short)) {
			return "--" + flag.Name
		}
	}
	return ""
}

// decodeInt decodes a whole number, with an error that says what is allowed.
func decodeInt(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("number", &text); err != nil {
		return err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("%q is not valid: use a whole number", text)
	}
	target.SetInt(int64(n))
	return nil
}

// decodeFile decodes the path of a file, which must exist. An environment variable may be
// set to nothing.
func decodeFile(ctx *kong.DecodeContext, target reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("file", &path); err != nil || path == "" {
		return err
	}
	if !ctx.Value.Active || ctx.Value.Set {
		return nil // a variable that is for another command, or that a flag overrides
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%q is a directory: use a file", path)
	}
	target.SetString(path)
	return nil
}

// wantsJSON reports whether the parsed command prints JSON.
func wantsJSON(parsed *kong.Context) bool {
	for _, flag := range parsed.Selected().Flags {
		if flag.Name == "output" {
			return flag.Target.String() == "json"
		}
	}
	return false
}

// asksForJSON reports whether arguments that kong could not parse ask for JSON.
func asksForJSON(args []string, environment string) bool {
	format := environment
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	for i, arg := range args {
		for _, flag := range []string{"--output", "-o"} {
			if value, ok := strings.CutPrefix(arg, flag); ok && (value != "" || i+1 < len(args)) {
				if value == "" {
					value = args[i+1]
				}
				format = strings.TrimPrefix(value, "=")
			}
		}
	}
	return format == "json"
}

// interrupted names the interrupt in an error that comes from the end of ctx.
func interrupted(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return err
	case err == ctx.Err():
		return errors.New("interrupted")
	}
	return fmt.Errorf("interrupted: %w", err)
}
