// Command mutants shows which changes of lapse no test notices. By a seed it chooses small
// changes of the rooms below (mutations: a comparison turned, a statement removed, a zero
// returned, and so on), and runs against each of them the tests that reach it.
//
// All mutations are in one copy of lapse: a function that has some begins with a changed copy of
// its body for each, and the environment says which of them is on. So each test program is
// compiled once, and without a mutation it tells which tests reach which function. Go compiles the
// copy by its flag -overlay; the files themselves stay as they are. Only mutations that compile
// count, and one that survives counts only if its package compiles to something else.
//
//	main.go   the rooms, the flags, the table
//	sites.go  what can be changed in a Go function
//	lua.go    what can be changed in a script
//	plant.go  chooses mutations and writes the copy
//	judge.go  runs the tests
//
// Run it at the root of the module (make mutants). It prints a table and what survived. The same
// seed chooses the same mutations of a room as long as the room stays as it is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// room is what the table has a row for.
type room struct {
	name      string
	dirs      []string // its packages
	others    string   // a package whose tests run the room too, and after a space which of them
	simulated bool     // it runs in the simulation
}

// processorRoom is a room whose code the tests of package processor and the simulation run.
func processorRoom(name string) room {
	return room{name, []string{"processor/internal/" + name}, "processor", true}
}

var rooms = []room{
	{"ttlrules", []string{"ttlrules"}, "processor/internal/fold", true},
	processorRoom("fold"), processorRoom("shard"),
	{"sink", []string{"sink"}, "sink/service", false},
	{"store", []string{"sink/store"}, "processor", false},
	{"events", []string{"sink/events"}, "processor", true},
	{"httpapi", []string{"cmd/internal/httpapi", "cmd/internal/live"}, "cmd/internal/console", false},
	{"backup", []string{"cmd/internal/backup"}, "integration Backup|Restore|Until", false},
}

// options are the flags.
type options struct {
	seed, first  uint64
	each, seeds  int
	rooms, only  string
	list         bool
	limit, slack time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.Uint64Var(&o.seed, "seed", 1, "chooses the mutations")
	flag.IntVar(&o.each, "each", 24, "mutations of each room")
	flag.StringVar(&o.rooms, "rooms", "", "only these rooms, such as fold,shard")
	flag.StringVar(&o.only, "only", "", "only these mutations, by their numbers, such as 101,405")
	flag.BoolVar(&o.list, "list", false, "print the mutations, and try none")
	flag.IntVar(&o.seeds, "histories", 1000, "histories of the simulation for each mutation")
	flag.Uint64Var(&o.first, "from", 1, "the seed of the first history")
	flag.DurationVar(&o.limit, "limit", 90*time.Second, "how long the tests of a package, or the histories, take at most")
	flag.DurationVar(&o.slack, "slack", 10*time.Second, "CPU time that tests may take beyond three times what they take without a mutation, until they hang")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run chooses mutations, tries them, and prints what came of it.
func run(ctx context.Context, o options) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var some []room
	var all []*mutation
	for i, r := range rooms {
		if o.rooms != "" && !slices.Contains(strings.Split(o.rooms, ","), r.name) {
			continue
		}
		chosen, err := choose(root, r, o.seed, o.each, 1000*(i+1))
		if err != nil {
			return fmt.Errorf("room %s: %w", r.name, err)
		}
		some, all = append(some, r), append(all, chosen...)
	}
	if o.list {
		for _, m := range all {
			fmt.Println(m)
		}
		return nil
	}
	overlay, err := plant(root, dir, all)
	if err != nil {
		return err
	}
	j := judge{root: root, dir: dir, overlay: overlay, options: o, programs: map[string]*program{}}
	fmt.Print("| room | tried | caught | own tests | other tests | histories | hang | survived |\n|---|---|---|---|---|---|---|---|\n")
	var survived []string
	for _, r := range some {
		counts := map[string]int{}
		for _, m := range all {
			if m.room != r.name || o.only != "" && !slices.Contains(strings.Split(o.only, ","), fmt.Sprint(m.id)) {
				continue
			}
			by, why, err := j.try(ctx, r, m)
			if err != nil {
				return fmt.Errorf("%v: %w", m, err)
			}
			counts[by]++
			fmt.Fprintf(os.Stderr, "%s %v: %s %s\n", time.Now().Format(time.TimeOnly), m, by, why)
			if by == "survived" {
				survived = append(survived, m.String())
			}
		}
		caught := counts["own"] + counts["other"] + counts["histories"] + counts["hang"]
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d | %d |\n", r.name, caught+counts["survived"], caught,
			counts["own"], counts["other"], counts["histories"], counts["hang"], counts["survived"])
	}
	fmt.Printf("\nSurvived:\n%s\n", strings.Join(survived, "\n"))
	return nil
}

// mutation is one small change of a file.
type mutation struct {
	id             int
	room, file     string // the file's path from the root of the module
	of             *source
	function, kind string
	line           int
	edit           edit
	was            string
	body           [2]int // where the function's body begins and ends
	labels         []int  // where the body has the end of a label's name
	ends           bool   // a statement may follow the body: it returns nothing
}

// edit replaces bytes of a file.
type edit struct {
	from, to int
	text     string
}

func (m *mutation) String() string {
	short := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	return fmt.Sprintf("%d %s:%d %s: %s: `%s` -> `%s`", m.id, m.file, m.line, m.function, m.kind, short(m.was), short(m.edit.text))
}

// isLua reports whether it changes a script.
func (m *mutation) isLua() bool { return filepath.Ext(m.file) == ".lua" }
