// Command mutate shows which changes of lapse no test notices. By a seed it chooses small changes of the
// rooms below (mutations: a condition negated, a statement removed, nil returned in place of an error, and so
// on, in the Lua scripts too). It runs tests against each of them until one fails.
//
// go compiles a mutation by its flag -overlay, so the files of the work tree stay as they are. A mutation that
// does not compile is not chosen. First each test runs alone without a mutation, which shows how long it takes and
// which lines it reaches; a cache keeps that as long as the room and the tests stay as they are. For a mutation
// only tests that reach its line run, the quickest first, until one fails:
//
//  1. those of the package, as many as take no longer than -budget;
//  2. those of each package that imports it, likewise;
//  3. histories of the simulation from a fresh seed, for -for, if the room runs in the simulation.
//
// A run that takes three times as long as without a mutation, and 30 s more, counts as caught.
//
//	main.go    the rooms, the flags, the table
//	source.go  reads a package, chooses mutations
//	sites.go   what can be changed in a Go function or in a script
//	judge.go   runs the tests
//	reach.go   which tests reach a line
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
	{"streams", "processor/internal/streams", true},
	{"snapshot", "processor/internal/snapshot", true},
	{"retention", "processor/internal/retention", true},
	{"region", "processor/internal/region", true},
	{"lease", "processor/lease", false},
	{"store", "sink/store", true},
	{"layout", "sink/internal/layout", true},
	{"events", "sink/events", true},
	{"sink", "sink", true},
	{"entries", "sink/entries", false},
	{"wire", "sink/wire", true},
	{"client", "sink/client", false},
	{"service", "sink/service", true},
	{"httpapi", "cmd/internal/httpapi", false},
	{"live", "cmd/internal/live", false},
	{"forward", "cmd/internal/forward", false},
	{"backup", "cmd/internal/backup", false},
	{"processor", "processor", true},
	{"health", "processor/health", true},
	{"embedded", "sink/embedded", false},
	{"dial", "sink/dial", false},
	{"credentials", "sink/credentials", false},
	{"cli", "cmd/internal/cli", false},
	{"serve", "cmd/internal/serve", false},
	{"console", "cmd/internal/console", false},
	{"access", "cmd/internal/access", false},
	{"web", "cmd/internal/web", false},
	{"output", "cmd/internal/output", false},
	{"ndjson", "cmd/internal/ndjson", false},
	{"redisconn", "cmd/internal/redisconn", false},
	{"tracing", "cmd/internal/tracing", false},
}

// options are the flags.
type options struct {
	seed                               uint64
	n                                  int
	room, cache                        string
	list                               bool
	simulate, limit, budget, importers time.Duration
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
		"how long to run histories of the simulation for each mutation; 0: run none")
	flag.DurationVar(&o.limit, "limit", time.Minute, "do not use a test that takes longer without a mutation")
	flag.DurationVar(&o.budget, "budget", time.Minute,
		"how long the tests of a package that reach a mutation may take together without it; the others do not run")
	flag.DurationVar(&o.importers, "importers", time.Minute,
		"how long to find out what the tests of a package that imports the room's reach; 0: do not use them")
	flag.StringVar(&o.cache, "cache", "", "the directory that keeps what the tests reach (default lapse-mutate "+
		"in the user's cache)")
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
	if o.n < 1 {
		return fmt.Errorf("-n %d is not valid: use how many mutations to try, 1 or more", o.n)
	}
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
	j, err := newJudge(ctx, o, dir)
	if err != nil {
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
				fmt.Fprintln(&survivors, m, why)
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
