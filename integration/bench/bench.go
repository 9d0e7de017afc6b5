package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
)

// options are the flags.
type options struct {
	rows     string
	n        int
	rounds   int
	scale    bool
	json     bool
	profile  string
	lapse    string
	keep     bool
	rate     int
	body     int
	seed     uint64
	parallel int
}

// bench is one run of the program.
type bench struct {
	options
	rig      *rig.Rig
	progress io.Writer

	problems []string // what was found to be wrong with lapse: it fails the run
	notes    []string // what was found out beside the figures
}

// row is one row of the table. It is run once a round, and measures all sides.
type row struct {
	name  string
	title string
	run   func(*bench, context.Context, int) ([]table.Figure, error)
	asked bool // only by -scale, or by name
}

var rows = []row{
	{name: "ingest", title: "ingest, first publish to readable and indexed", run: (*bench).ingest},
	{name: "lateness", title: "lateness of expiry events", run: (*bench).lateness},
	{name: "due", title: "due at the same instant", run: (*bench).due},
	{name: "change", title: "default TTL changed, publish to effective", run: (*bench).change},
	{name: "reads", title: "reads, 64 at a time", run: (*bench).reads},
	{name: "reaping", title: "read p99 while reaping", run: (*bench).reaping},
	{name: "memory", title: "memory in Redis per document", run: (*bench).memory},
	{name: "rebuild", title: "rebuild of a wiped Redis", run: (*bench).rebuild},
	{name: "startup", title: "start-up of the embedded default", run: (*bench).startup},
	{name: "scale", title: "cost as work grows", run: (*bench).grow, asked: true},
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	f.StringVar(&o.rows, "rows", "", "rows to run, separated by commas, of "+strings.Join(names, ", ")+" (all but scale)")
	f.IntVar(&o.n, "n", 300_000, "documents, where the table says 300,000; the other sizes go with it")
	f.IntVar(&o.rounds, "rounds", 3, "rounds; in each, every side has its turn")
	f.BoolVar(&o.scale, "scale", false, "run the row of cost as work grows too, up to ten times n")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.StringVar(&o.profile, "profile", "", "folder for CPU profiles of lapse, which then runs inside a child of this program")
	f.StringVar(&o.lapse, "lapse", "", "the lapse binary to run (built from ./cmd/lapse)")
	f.BoolVar(&o.keep, "keep", false, "keep the servers' files and logs")
	f.IntVar(&o.rate, "rate", 5000, "documents a second in the row of lateness")
	f.IntVar(&o.body, "body", 256, "bytes of a document's body")
	f.Uint64Var(&o.seed, "seed", 1, "of everything that is random")
	f.IntVar(&o.parallel, "parallel", 64, "reads at a time")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.n < 3000 || o.rounds < 1 || o.rate < 100 || o.body < load.MinBody {
		return o, fmt.Errorf("allowed are -n 3000 or more, -rounds 1 or more, -rate 100 or more, -body %d or more", load.MinBody)
	}
	return o, nil
}

// chosen are the rows to run.
func (o options) chosen() ([]row, error) {
	var chosen []row
	if o.rows == "" {
		for _, r := range rows {
			if !r.asked || o.scale {
				chosen = append(chosen, r)
			}
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(o.rows, ",") {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no row %q", name)
		}
		chosen = append(chosen, rows[i])
	}
	return chosen, nil
}

// runBench runs the chosen rows, round by round, and prints what came out.
func runBench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	b := &bench{options: o, progress: stderr}
	dir, err := os.MkdirTemp("", "lapse-bench-")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(stderr, "the servers' files are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	b.rig = &rig.Rig{Dir: dir, Lapse: o.lapse, Profiles: o.profile, Clients: o.parallel, Note: b.note, Problem: b.problem}
	if err := b.rig.Build(ctx); err != nil {
		return err
	}
	t := table.New(ctx, b.n, b.rounds, b.body)
	for _, r := range chosen {
		for round := range b.rounds {
			began := time.Now()
			figures, err := r.run(b, ctx, round)
			if err != nil {
				return fmt.Errorf("row %s, round %d: %w", r.name, round+1, err)
			}
			t.Add(r.name, r.title, figures)
			fmt.Fprintf(stderr, "%s, round %d of %d: %.0f s\n", r.name, round+1, b.rounds, time.Since(began).Seconds())
		}
	}
	t.Finish(b.notes, b.problems)
	if o.json {
		err = t.WriteJSON(stdout)
	} else {
		err = t.Write(stdout)
	}
	if err == nil && len(b.problems) > 0 {
		return fmt.Errorf("lapse did not do what was timed: %s", strings.Join(b.problems, "; "))
	}
	return err
}

// inTurn runs sides one after the other, beginning with another one each round, so
// that none is always first.
func inTurn(round int, sides ...func() error) error {
	for i := range sides {
		if err := sides[(i+round)%len(sides)](); err != nil {
			return err
		}
	}
	return nil
}

// problem notes what makes the figures of lapse void.
func (b *bench) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// note notes what is worth saying beside the figures.
func (b *bench) note(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	b.notes = append(b.notes, s)
	fmt.Fprintln(b.progress, "  "+s)
}

// load is n documents of the usual size, with a TTL of their own unless that is 0.
func (b *bench) load(n, ttl int) load.Load { return load.New(n, b.body, ttl, b.seed) }
