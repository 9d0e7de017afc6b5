// Command teeth shows that the simulation can fail: it breaks lapse in one place at a time,
// and counts how many histories the simulation needs until it finds that out, or whether a kept plan does.
//
// Each [tooth] is a small change of lapse that breaks one of its guarantees, as a mistake in
// a refactoring would. Go compiles lapse with the change (its flag -overlay); the files
// themselves stay as they are. Run it at the root of the module. It prints a Markdown table,
// and ends with code 1 if the simulation did not find a tooth.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "teeth:", err)
		os.Exit(1)
	}
}

// run finds the teeth that the arguments name, and prints a table of the results.
func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("teeth", flag.ExitOnError)
	only := flags.String("only", "", "find this tooth alone")
	seeds := flags.Uint64("seeds", 10_000, "histories at most for each tooth")
	from := flags.Uint64("from", 1, "the first seed")
	list := flags.Bool("list", false, "print what each tooth breaks, and find none")
	_ = flags.Parse(args)
	some := slices.DeleteFunc(slices.Clone(teeth), func(t tooth) bool { return *only != "" && t.name != *only })
	if len(some) == 0 {
		return fmt.Errorf("there is no tooth %q: -list shows all", *only)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if *list {
		fmt.Print("| tooth | breaks | what happens | file |\n|---|---|---|---|\n")
		for _, t := range some {
			fmt.Printf("| %s | %s | %s | %s |\n", t.name, t.breaks, t.effect, t.file)
		}
		return nil
	}
	var missed []string
	fmt.Print("| tooth | breaks | seeds until found | found by |\n|---|---|---|---|\n")
	for _, t := range some {
		v, err := t.find(ctx, root, *seeds, *from)
		if err != nil {
			return fmt.Errorf("tooth %s: %w", t.name, err)
		}
		if !v.found {
			missed = append(missed, t.name)
		}
		fmt.Printf("| %s | %s | %s | %s |\n", t.name, t.breaks, v.seeds, strings.ReplaceAll(v.reason, "|", `\|`))
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d of %d teeth were not found: %s", len(missed), len(some), strings.Join(missed, ", "))
	}
	return nil
}
