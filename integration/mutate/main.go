// Command mutate shows which changes of lapse no test notices. By a seed it chooses small changes of the
// rooms below (mutations: a condition negated, a statement removed, nil returned in place of an error, and so
// on, in the Lua scripts too). It runs tests against each of them until one fails.
//
// go compiles a mutation by its flag -overlay, so the files of the work tree stay as they are. A mutation that
// does not compile is not chosen. These tests run, in this order:
//
//  1. those of the package;
//  2. those of the packages that import it, where they take no longer than -importers;
//  3. histories of the simulation from a fresh seed, for -for, if the room runs in the simulation.
//
// First all of them run without a mutation: if one fails then, mutate ends. A run that takes three times as
// long as that one, and 30 s more, counts as caught.
//
//	main.go    the rooms, the flags, the table
//	source.go  reads a package, chooses mutations
//	sites.go   what can be changed in a Go function or in a script
//	judge.go   runs the tests
//
// Run it at the root of the module: go run ./integration/mutate. The same seed chooses the same mutations of a
// room as long as the room stays as it is.
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
	"time"
)

// room is what the table has a row for.
type room struct {
	name, dir string
	simulated bool // the simulation runs it
}

// rooms are those whose mutations the tests should notice.
var rooms = []room{
	{"ttlrules", "ttlrules", true},
	{"fold", "processor/internal/fold", true},
	{"shard", "processor/internal/shard", true},
	{"sink", "sink", false},
	{"store", "sink/store", true},
	{"events", "sink/events", true},
	{"httpapi", "cmd/internal/httpapi", false},
	{"backup", "cmd/internal/backup", false},
}

// options are the flags.
type options struct {
	seed                   uint64
	n                      int
	room                   string
	list                   bool
	simulate, limit, cheap time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "chooses the mutations")
	flag.IntVar(&o.n, "n", 24, "how many mutations, spread evenly over the rooms")
	flag.StringVar(&o.room, "room", "", "only these rooms, such as fold,shard; "+
		"or a directory with a package, such as processor/lease")
	flag.BoolVar(&o.list, "list", false, "print the mutations, and try none")
	flag.DurationVar(&o.simulate, "for", 20*time.Second,
		"how long to run histories of the simulation for each mutation")
	flag.DurationVar(&o.limit, "limit", 5*time.Minute, "how long the tests of a package may take without a mutation")
	flag.DurationVar(&o.cheap, "importers", 10*time.Second,
		"how long the tests of a package that imports the room's may take without a mutation, to be run too")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// chosenRooms returns the rooms that the flag -room names.
func chosenRooms(names string) (chosen []room, err error) {
	if names == "" {
		return rooms, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(rooms, func(r room) bool { return r.name == name })
		if i >= 0 {
			chosen = append(chosen, rooms[i])
		} else if _, err := os.Stat(name); err == nil {
			chosen = append(chosen, room{name: name, dir: name})
		} else {
			var known []string
			for _, r := range rooms {
				known = append(known, r.name)
			}
			return nil, fmt.Errorf("there is no room %q: use %s, or the directory of a package", name,
				strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// run chooses mutations, tries them, and prints which tests caught them.
func run(ctx context.Context, o options) error {
	some, err := chosenRooms(o.room)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	of := make([][]*mutation, len(some))
	for i, r := range some {
		n := o.n*(i+1)/len(some) - o.n*i/len(some)
		if of[i], err = choose(r, o.seed, n); err != nil {
			return fmt.Errorf("room %s: %w", r.name, err)
		}
		if o.list {
			for _, m := range of[i] {
				fmt.Println(m)
			}
		}
	}
	if o.list {
		return nil
	}
	j := judge{options: o, dir: dir, slack: 30 * time.Second}
	if err := j.baseline(ctx, some); err != nil {
		return err
	}
	var table, survivors strings.Builder
	for i, r := range some {
		caught := map[string]int{}
		for _, m := range of[i] {
			by, why, err := j.try(ctx, r, m)
			if err != nil {
				return fmt.Errorf("%v: %w", m, err)
			}
			caught[by]++
			fmt.Fprintf(os.Stderr, "%s %v: %s %s\n", time.Now().Format(time.TimeOnly), m, by, why)
			if by == bySurvival {
				fmt.Fprintln(&survivors, m)
			}
		}
		tried := len(of[i])
		fmt.Fprintf(&table, "| %s | %d | %d |", r.name, tried, tried-caught[bySurvival])
		for _, by := range []string{byOwn, byImporters, bySimulation, byLimit, bySurvival} {
			fmt.Fprintf(&table, " %d |", caught[by])
		}
		table.WriteString("\n")
	}
	fmt.Printf("| room | tried | caught | %s | %s | %s | %s | %s |\n|---|---|---|---|---|---|---|---|\n%s",
		byOwn, byImporters, bySimulation, byLimit, bySurvival, &table)
	if survivors.Len() > 0 {
		fmt.Printf("\nNo test noticed these:\n%s", &survivors)
	}
	return nil
}
