package cli

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish"`
}

func (c *completionCommand) Run(streams output.Streams, parsed *kong.Context) error {
	write := map[string]func([]completion) string{"bash": bashCompletion, "zsh": zshCompletion,
		"fish": fishCompletion}[c.Shell]
	_, err := fmt.Fprint(streams.Out, write(completions(parsed.Model.Node)))
	return err
}

// We write the scripts ourselves. Those of kongplete and kong-completion run lapse at each TAB, show
// no help texts in zsh and fish, and turn every run of lapse into a completion while COMP_LINE is set.
// Ours run lapse for the names of collections alone (see completing).

// completion is a command, and what may follow its name.
type completion struct {
	name, help string
	collection bool     // the first argument is the name of a collection
	files      bool     // an argument is a file
	words      []string // the values of an argument, if it has a fixed set
	flags      []completionFlag
}

type completionFlag struct {
	name, short, help string
	value             bool     // it takes a value
	repeats           bool     // it may be given several times
	files             bool     // the value is a file or a directory
	words             []string // the values, if it has a fixed set
}

func completions(app *kong.Node) (all []completion) {
	var names []string
	for _, node := range app.Children {
		if node.Hidden {
			continue
		}
		names = append(names, node.Name)
		c := completion{name: node.Name, help: node.Help}
		for _, arg := range node.Positional {
			c.collection = c.collection || arg.Name == "collection"
			c.files = c.files || arg.Name == "file"
			c.words = append(c.words, enum(arg)...)
		}
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				f := completionFlag{name: flag.Name, help: flag.Help, value: !flag.IsBool(), repeats: flag.IsSlice(),
					words: enum(flag.Value)}
				f.files = flag.PlaceHolder == "FILE" || flag.PlaceHolder == "DIR"
				if flag.Short != 0 {
					f.short = string(flag.Short)
				}
				c.flags = append(c.flags, f)
			}
		}
		all = append(all, c)
	}
	for i := range all {
		if all[i].name == "help" {
			all[i].words = append(names, connectionName)
		}
	}
	return all
}

func enum(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return strings.Split(v.Enum, ",")
}

// dashed returns the names of a flag with their dashes.
func (f completionFlag) dashed() []string {
	if f.short == "" {
		return []string{"--" + f.name}
	}
	return []string{"-" + f.short, "--" + f.name}
}

func bashCompletion(all []completion) string {
	var b strings.Builder
	b.WriteString(`# Completion of lapse for bash: source <(lapse completion bash)
# The names come from the network: nothing here evaluates them, as compgen -W would.
_lapse_collections() {
    local name
    while IFS= read -r name; do
        if [[ $name == "$1"* && $name != *[!A-Za-z0-9_-]* ]]; then
            COMPREPLY+=("$name")
        fi
    done < <("${COMP_WORDS[0]}" ` + completeWord + ` "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    (( ${#COMPREPLY[@]} ))
}
_lapse() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    # bash splits --flag=value into three words.
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    fi
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
`)
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	fmt.Fprintf(&b, "        COMPREPLY=($(compgen -W '%s --help' -- \"$current\"))\n        return\n    fi\n",
		strings.Join(names, " "))
	b.WriteString("    case ${COMP_WORDS[1]} in\n")
	for _, c := range all {
		fmt.Fprintf(&b, "    %s)\n        case $previous in\n", c.name)
		var flags []string
		for _, f := range c.flags {
			flags = append(flags, "--"+f.name)
			switch names := strings.Join(f.dashed(), "|"); {
			case !f.value:
			case f.files:
				fmt.Fprintf(&b, "        %s) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", names)
			default:
				fmt.Fprintf(&b, "        %s) COMPREPLY=($(compgen -W '%s' -- \"$current\")); return ;;\n", names,
					strings.Join(f.words, " "))
			}
		}
		fmt.Fprintf(&b, "        esac\n        if [[ $current == -* ]]; then\n            COMPREPLY=($(compgen -W '%s' -- "+
			"\"$current\"))\n", strings.Join(flags, " "))
		if c.collection {
			b.WriteString("        elif _lapse_collections \"$current\"; then\n            :\n")
		}
		switch {
		case c.files:
			b.WriteString("        else\n            compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\"))\n")
		case len(c.words) > 0:
			fmt.Fprintf(&b, "        else\n            COMPREPLY=($(compgen -W '%s' -- \"$current\"))\n",
				strings.Join(c.words, " "))
		}
		b.WriteString("        fi ;;\n")
	}
	b.WriteString("    esac\n}\ncomplete -F _lapse lapse\n")
	return b.String()
}

func zshCompletion(all []completion) string {
	var b strings.Builder
	b.WriteString(`#compdef lapse
# Completion of lapse for zsh: source <(lapse completion zsh)
_lapse_collections() {
    compadd -- ${(f)"$(lapse ` + completeWord + ` "lapse ${(j: :)words[1,CURRENT]}" 2>/dev/null)"}
}
_lapse() {
    if (( CURRENT == 2 )); then
        local -a commands
        commands=(
`)
	text := strings.NewReplacer(`\`, `\\`, `:`, `\:`, `[`, `\[`, `]`, `\]`, `'`, `'\''`)
	for _, c := range all {
		fmt.Fprintf(&b, "            '%s:%s'\n", c.name, text.Replace(c.help))
	}
	b.WriteString(`        )
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case $words[1] in
`)
	for _, c := range all {
		fmt.Fprintf(&b, "    %s)\n        _arguments", c.name)
		for _, f := range c.flags {
			value := ""
			switch {
			case !f.value:
			case f.files:
				value = ":file:_files"
			case len(f.words) > 0:
				value = ":value:(" + strings.Join(f.words, " ") + ")"
			default:
				value = ":value: "
			}
			for _, name := range f.dashed() {
				if f.value && strings.HasPrefix(name, "--") {
					name += "="
				}
				if f.repeats {
					name = "*" + name
				}
				fmt.Fprintf(&b, " \\\n            '%s[%s]%s'", name, text.Replace(f.help), value)
			}
		}
		rest := "*: : "
		switch {
		case c.files:
			rest = "*:file:_files"
		case len(c.words) > 0:
			rest = "1:value:(" + strings.Join(c.words, " ") + ")"
		}
		if c.collection {
			b.WriteString(" \\\n            '1:collection:_lapse_collections'")
		}
		fmt.Fprintf(&b, " \\\n            '%s' ;;\n", rest)
	}
	b.WriteString(`    esac
}
if [[ $funcstack[1] == _lapse ]]; then
    _lapse "$@"
else
    compdef _lapse lapse
fi
`)
	return b.String()
}

func fishCompletion(all []completion) string {
	var b strings.Builder
	b.WriteString("# Completion of lapse for fish: lapse completion fish | source\ncomplete -c lapse -f\n")
	text := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for _, c := range all {
		fmt.Fprintf(&b, "complete -c lapse -n __fish_use_subcommand -a %s -d '%s'\n", c.name, text.Replace(c.help))
	}
	for _, c := range all {
		begin := "complete -c lapse -n '__fish_seen_subcommand_from " + c.name + "'"
		if c.files {
			fmt.Fprintf(&b, "%s -F\n", begin)
		}
		if c.collection {
			fmt.Fprintf(&b, "%s -a '(lapse %s (commandline -cp | string collect) 2>/dev/null)'\n", begin, completeWord)
		}
		if len(c.words) > 0 {
			fmt.Fprintf(&b, "%s -a '%s'\n", begin, strings.Join(c.words, " "))
		}
		for _, f := range c.flags {
			b.WriteString(begin)
			if f.short != "" {
				b.WriteString(" -s " + f.short)
			}
			b.WriteString(" -l " + f.name)
			switch {
			case !f.value:
			case f.files:
				b.WriteString(" -r -F")
			case len(f.words) > 0:
				fmt.Fprintf(&b, " -x -a '%s'", strings.Join(f.words, " "))
			default:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d '%s'\n", text.Replace(f.help))
		}
	}
	return b.String()
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
