package main

import (
	"cmp"
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
	rows    string
	n       int
	rounds  int
	scale   bool
	json    bool
	profile string
	lapse   string
	keep    bool
	rate    int
	gone    int
	body    int
	shards  int
	masters int
	warn    int
}

const (
	seed     = 1  // of everything that is random
	parallel = 64 // reads at a time
)

// bench is one run of the program.
type bench struct {
	options
	rig      *rig.Rig
	cpu      []time.Duration // of each server of the side that expire has run last
	scripts  int             // that ran in Redis meanwhile, if it was lapse
	progress io.Writer

	problems []string // the faults of lapse, which fail the run
	notes    []string // printed beside the figures
}

// row is a row of the table. It runs once a round, and measures all sides.
type row struct {
	name  string
	title string
	run   func(*bench, context.Context, int) ([]table.Figure, error)
	extra bool // runs only with -scale, or by its name
	size  int  // documents in the group of rows design, in place of usual; 0 if the row is not in it

	documents int // 0: those of the flags
}

const (
	leastN = 3000
	usual  = 300_000  // documents, if the flags name no other number
	design = "design" // all rows that have a size
)

var rows = []row{
	{name: "late", title: "lateness of events beside beanstalkd", run: (*bench).late, extra: true, size: usual},
	{name: "ingest", title: "ingest, first publication to readable and indexed", run: (*bench).ingest, size: usual},
	{name: "byhand", title: "ingest beside what is written by hand", run: (*bench).byHand, extra: true, size: usual},
	{name: "lateness", title: "lateness of expiry events", run: (*bench).lateness},
	{name: "due", title: "due at the same instant", run: (*bench).due, size: usual / 2},
	{name: "changed", title: "due by a changed default, nothing else to do", run: (*bench).changed, size: usual / 2},
	{name: "change", title: "default TTL changed, publication to effective", run: (*bench).change},
	{name: "reads", title: "reads, 64 at a time", run: (*bench).reads},
	{name: "reaping", title: "read p99 while reaping", run: (*bench).reaping, size: usual},
	{name: "memory", title: "memory in Redis per document", run: (*bench).memory},
	{name: "rebuild", title: "rebuild of a wiped Redis", run: (*bench).rebuild, size: 1_000_000},
	{name: "startup", title: "start-up of the embedded default", run: (*bench).startup},
	{name: "snapshots", title: "lateness while snapshots are taken", run: (*bench).snapshots, extra: true},
	{name: "queries", title: "queries by an index, and what it costs", run: (*bench).queries, extra: true},
	{name: "messages", title: "messages at their time", run: (*bench).messages, extra: true},
	{name: "shards", title: "CPU a document with four shards", run: (*bench).shards, extra: true, size: usual / 2},
	{name: "cost", title: "CPU of a document, beside the formula for it", run: (*bench).cost, extra: true},
	{name: "scale", title: "cost as the work grows", run: (*bench).grow, extra: true},
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	var names, extra []string
	for _, r := range rows {
		names = append(names, r.name)
		if r.extra {
			extra = append(extra, r.name)
		}
	}
	f.StringVar(&o.rows, "rows", "", "rows to run, separated by commas: "+strings.Join(names, ", ")+
		" (default all but "+strings.Join(extra, ", ")+"); or design, which stands for some of them, each with a size of its own")
	f.IntVar(&o.n, "n", usual, "number of documents; the other sizes are proportional to it")
	f.IntVar(&o.rounds, "rounds", 3, "number of rounds")
	f.BoolVar(&o.scale, "scale", false, "run the row scale too, with up to ten times n documents")
	f.IntVar(&o.gone, "gone", 0, "documents that came and went before, in the row startup")
	f.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	f.StringVar(&o.profile, "profile", "", "folder for CPU profiles of lapse, which then runs in a child of this program")
	f.StringVar(&o.lapse, "lapse", "", "the lapse binary to run (default: built from ./cmd/lapse); "+
		"the bench reads what it stores, so build the bench from the same commit")
	f.BoolVar(&o.keep, "keep", false, "keep the servers' files and logs")
	f.IntVar(&o.rate, "rate", 5000, "documents a second in the row lateness")
	f.IntVar(&o.warn, "warn", 0, "seconds before its deadline at which lapse warns of each document in the rows lateness and due; 0 for no warnings")
	f.IntVar(&o.shards, "shards", 1, "shards of lapse")
	f.IntVar(&o.masters, "masters", 1, "Redis servers of lapse; more than one are a Redis Cluster")
	f.IntVar(&o.body, "body", 256, "size of a document in bytes")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("argument %q is not known: use flags only, see -help", f.Arg(0))
	}
	if o.n < leastN || o.rounds < 1 || o.rate < 100 || o.body < load.MinBody {
		return o, fmt.Errorf("a flag is too small: use -n %d or more, -rounds 1 or more, -rate 100 or more, -body %d or more", leastN, load.MinBody)
	}
	return o, nil
}

// chosen returns the rows to run.
func (o options) chosen() ([]row, error) {
	var chosen []row
	if o.rows == "" {
		for _, r := range rows {
			if !r.extra || o.scale {
				chosen = append(chosen, r)
			}
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(o.rows, ",") {
		if name == design {
			for _, r := range rows {
				if r.size > 0 {
					r.documents = max(leastN, r.size*o.n/usual)
					r.title = fmt.Sprintf("%s, -n %d", r.title, r.documents)
					chosen = append(chosen, r)
				}
			}
			continue
		}
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no row %q: see -help for the names", name)
		}
		chosen = append(chosen, rows[i])
	}
	return chosen, nil
}

// runBench runs the chosen rows, round by round, and prints the table.
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
		fmt.Fprintln(stderr, "The files of the servers are in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	b.rig = &rig.Rig{Dir: dir, Lapse: o.lapse, Profiles: o.profile, Clients: parallel, Shards: o.shards, Masters: o.masters, Note: b.note, Problem: b.problem}
	if err := b.rig.Build(ctx); err != nil {
		return err
	}
	t := table.New(ctx, o.n, b.rounds, b.body)
	for _, r := range chosen {
		b.n = cmp.Or(r.documents, o.n)
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
		return fmt.Errorf("lapse failed the checks: %s", strings.Join(b.problems, "; "))
	}
	return err
}

// inTurn runs the sides one after the other. Each round begins with another side.
func inTurn(round int, sides ...func() error) error {
	for i := range sides {
		if err := sides[(i+round)%len(sides)](); err != nil {
			return err
		}
	}
	return nil
}

// problem records a fault that makes the figures of lapse void.
func (b *bench) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// note records and prints a remark.
func (b *bench) note(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	b.notes = append(b.notes, s)
	fmt.Fprintln(b.progress, "  "+s)
}

// load makes n documents of the usual size. Their own TTL is ttl seconds, or none if 0.
func (b *bench) load(n, ttl int) load.Load { return load.New(n, b.body, ttl, seed) }
