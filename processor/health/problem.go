package health

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is what keeps a process from being ready, unless it is minor.
type Problem struct {
	// Name is a label of the metric, and has a section in deploy/docs/runbook.md; so names are few and fixed.
	// What a process only passes through, such as a log that is not applied yet, has none.
	Name   string
	Advice string // what an operator can do
	Reason error  // nil while there is no problem
	Shards []int  // that have it, ascending; nil for the whole process
	Minor  bool   // it keeps no process from being ready: it harms the clients that caused it alone
}

// guides is where the guides for those who run lapse are.
const guides = "https://github.com/seed18712806/lapse/blob/main/deploy/docs/"

// Regions is where the guide to regions tells how to join two of them.
const Regions = guides + "regions.md#two-regions-step-by-step"

// Runbook is where the runbook has a heading, by its anchor.
func Runbook(anchor string) string { return guides + "runbook.md#" + anchor }

// Link is where the runbook tells what to do about the problem.
func (p Problem) Link() string {
	if p.Name == "" {
		return Runbook("lapsenotready")
	}
	return Runbook("problem-" + strings.ReplaceAll(strings.ToLower(p.Name), " ", "-"))
}

// String is the problem in one line: its shards, name and reason.
func (p Problem) String() string {
	if title := p.title(); title != "" {
		return title + ": " + oneLine(p.Reason)
	}
	return oneLine(p.Reason)
}

// title names the problem, and its shards.
func (p Problem) title() string {
	switch {
	case p.Shards == nil:
		return p.Name
	case p.Name == "":
		return Shards(p.Shards)
	}
	return Shards(p.Shards) + ": " + p.Name
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Problems are all problems of a process, or of a shard. They are an error whose text has a line for each.
type Problems []Problem

// localPort is the port of one connection of this process, in a reason such as
// "read tcp 10.0.0.1:51234->10.0.0.2:6379: i/o timeout". Each shard may have met another one.
var localPort = regexp.MustCompile(`:\d+->`)

// Add adds a problem, unless its reason is nil. Shards whose problems read alike share the first of them.
func (ps *Problems) Add(added Problem) {
	if added.Reason == nil {
		return
	}
	key := func(p Problem) string { return p.Name + ": " + localPort.ReplaceAllString(p.Reason.Error(), "->") }
	same := key(added)
	for i, p := range *ps {
		if p.Shards != nil && added.Shards != nil && key(p) == same {
			(*ps)[i].Shards = slices.Concat(p.Shards, added.Shards)
			return
		}
	}
	*ps = append(*ps, added)
}

// Err returns nil if there is no problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps Problems) Error() string {
	var lines []string
	for _, p := range ps {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// Links are where the runbook tells what to do about the problems, each once.
func (ps Problems) Links() (links []string) {
	for _, p := range ps {
		if link := p.Link(); !slices.Contains(links, link) {
			links = append(links, link)
		}
	}
	return links
}

// Unwrap returns the reasons.
func (ps Problems) Unwrap() (reasons []error) {
	for _, p := range ps {
		reasons = append(reasons, p.Reason)
	}
	return reasons
}

// Shards names shards, whose numbers ascend: "shard 3", "shards 0, 2", "shards 0 to 5, 7".
func Shards(numbers []int) string {
	if len(numbers) == 1 {
		return "shard " + strconv.Itoa(numbers[0])
	}
	var parts []string
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if end-i > 2 {
			parts = append(parts, fmt.Sprintf("%d to %d", numbers[i], numbers[end-1]))
		} else {
			end = i + 1
			parts = append(parts, strconv.Itoa(numbers[i]))
		}
		i = end
	}
	return "shards " + strings.Join(parts, ", ")
}
