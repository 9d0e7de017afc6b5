// Package table collects the figures of all rounds, and prints their medians.
package table

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Figure is the result of one round for one line of the table.
type Figure struct {
	What    string  // what the line of the row is about
	Unit    string  // the unit of Lapse and Other
	Lapse   float64 // lapse's figure
	Against string  // the other side; "" if there is none
	Other   float64 // its figure
	Ratio   float64 // of both figures; 0 if there is no other side
	Goal    Goal
}

// Goal is the goal of a line.
type Goal struct {
	Must   float64 // 0 for none
	Aim    float64
	Ratio  bool // the goal is for the ratio, not for lapse's figure
	AtMost bool // the goal is an upper limit
}

// HigherBetter sets the ratio of figures that are better if they are higher.
func HigherBetter(f Figure) Figure { f.Ratio = f.Lapse / f.Other; return f }

// LowerBetter sets the ratio of figures that are better if they are lower.
func LowerBetter(f Figure) Figure { f.Ratio = f.Other / f.Lapse; return f }

// Line is a line of the table: the medians over all rounds, and the figures of each. Most
// of its fields are the members of the JSON.
type Line struct {
	Row      string    `json:"row"`
	What     string    `json:"what"`
	Unit     string    `json:"unit"`
	Lapse    float64   `json:"lapse"`
	Against  string    `json:"against,omitempty"`
	Other    float64   `json:"other,omitempty"`
	Ratio    float64   `json:"ratio,omitempty"`
	Must     string    `json:"must,omitempty"`
	Aim      string    `json:"aim,omitempty"`
	Reached  string    `json:"reached,omitempty"` // no, must or aim
	Lapses   []float64 `json:"lapseRounds"`
	Others   []float64 `json:"otherRounds,omitempty"`
	Ratios   []float64 `json:"ratioRounds,omitempty"`
	goal     Goal
	rowTitle string
}

// Table is everything that the bench prints.
type Table struct {
	Date     string            `json:"date"`
	Machine  string            `json:"machine"`
	Versions map[string]string `json:"versions"`
	N        int               `json:"n"`
	Rounds   int               `json:"rounds"`
	Body     int               `json:"bodyBytes"`
	Lines    []*Line           `json:"lines"`
	Notes    []string          `json:"notes,omitempty"`
	Problems []string          `json:"problems,omitempty"`
}

// New makes an empty table. body is the size of a document in bytes.
func New(ctx context.Context, n, rounds, body int) *Table {
	t := &Table{Date: time.Now().UTC().Format(time.DateOnly), N: n, Rounds: rounds, Body: body,
		Machine:  fmt.Sprintf("%d × %s, %s/%s", runtime.NumCPU(), cpuModel(), runtime.GOOS, runtime.GOARCH),
		Versions: map[string]string{"go": runtime.Version()},
	}
	if out, err := exec.CommandContext(ctx, "redis-server", "--version").Output(); err == nil {
		if fields := strings.Fields(string(out)); len(fields) > 2 {
			t.Versions["redis"] = strings.TrimPrefix(fields[2], "v=")
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go", "github.com/redis/go-redis/v9":
				name := strings.TrimSuffix(strings.TrimSuffix(d.Path, "/v2"), "/v9")
				t.Versions[name[strings.LastIndexByte(name, '/')+1:]] = d.Version
			}
		}
	}
	return t
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for l := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return "CPU"
}

// Add adds the figures of one round of a row.
func (t *Table) Add(row, title string, figures []Figure) {
	for _, f := range figures {
		i := slices.IndexFunc(t.Lines, func(l *Line) bool {
			return l.Row == row && l.What == f.What && l.Against == f.Against
		})
		if i < 0 {
			i = len(t.Lines)
			t.Lines = append(t.Lines, &Line{Row: row, What: f.What, Unit: f.Unit, Against: f.Against, goal: f.Goal, rowTitle: title})
		}
		l := t.Lines[i]
		l.Lapses = append(l.Lapses, f.Lapse)
		if f.Against != "" {
			l.Others = append(l.Others, f.Other)
		}
		if f.Ratio != 0 && !math.IsInf(f.Ratio, 0) && !math.IsNaN(f.Ratio) { // a side without a result has no ratio
			l.Ratios = append(l.Ratios, f.Ratio)
		}
	}
}

// Finish computes the medians, and compares them with the goals.
func (t *Table) Finish(notes, problems []string) {
	t.Notes, t.Problems = notes, problems
	for _, l := range t.Lines {
		l.Lapse, l.Other, l.Ratio = median(l.Lapses), median(l.Others), median(l.Ratios)
		l.judge()
	}
}

// judge compares the line with its goal.
func (l *Line) judge() {
	sign, unit, v := "≥", l.Unit, l.Lapse
	if l.goal.AtMost {
		sign = "≤"
	}
	if l.goal.Ratio {
		unit, v = "×", l.Ratio
	}
	reaches := func(limit float64) bool {
		if l.goal.AtMost {
			return v <= limit
		}
		return v >= limit
	}
	text := func(limit float64) string { return fmt.Sprintf("%s %s %s", sign, Number(limit), unit) }
	if l.goal.Must != 0 {
		l.Must, l.Reached = text(l.goal.Must), "no"
		if reaches(l.goal.Must) {
			l.Reached = "must"
		}
	}
	if l.goal.Aim != 0 {
		l.Aim = text(l.goal.Aim)
		if reaches(l.goal.Aim) {
			l.Reached = "aim"
		}
	}
}

// WriteJSON writes the table as JSON, with the figures of each round.
func (t *Table) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(t)
}

// Write writes the table as aligned Markdown.
func (t *Table) Write(w io.Writer) error {
	versions := make([]string, 0, len(t.Versions))
	for name, v := range t.Versions {
		versions = append(versions, name+" "+v)
	}
	slices.Sort(versions)
	fmt.Fprintf(w, "%s; %s; %s\n%d documents, bodies of %d bytes, medians of %d rounds\n\n",
		t.Date, t.Machine, strings.Join(versions, ", "), t.N, t.Body, t.Rounds)
	tw := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(tw, "| row\t| what\t| lapse\t| against\t| its figure\t| ratio\t| must\t| aim\t| reached\t|")
	fmt.Fprintln(tw, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	last := ""
	for _, l := range t.Lines {
		title := l.rowTitle
		if title == last {
			title = ""
		}
		last = l.rowTitle
		other, ratio := "", ""
		if l.Against != "" {
			other = Number(l.Other) + " " + l.Unit
		}
		if l.Ratio != 0 {
			ratio = Number(l.Ratio) + " ×"
		}
		fmt.Fprintf(tw, "| %s\t| %s\t| %s %s\t| %s\t| %s\t| %s\t| %s\t| %s\t| %s\t|\n",
			title, l.What, Number(l.Lapse), l.Unit, l.Against, other, ratio, l.Must, l.Aim, l.Reached)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, p := range t.Problems {
		fmt.Fprintln(w, "FAULT:", p)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// Number formats a figure with three significant digits, or as a whole number from 1,000.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1000:
		s := fmt.Sprintf("%.0f", v)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}
