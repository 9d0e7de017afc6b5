// Package plan says what happens in a history of the simulation: a [Plan] is made from a seed,
// written as text, read again, and shrunk.
package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plan is what happens in a history, as a person can read it: what clients send, and what
// goes wrong. The seed decides all the rest, such as how long each message takes.
type Plan struct {
	Seed      uint64
	Processes int
	Replicas  int
	Window    time.Duration // in which the streams recognise duplicates
	Sync      time.Duration // within which NATS has on disk what it has acknowledged
	ReadAhead int           // messages that are read ahead; 0: as many as usual
	Region    bool          // a second region follows the first
	// documents that Redis finds at once between two places of an index; 0: as many as it is asked for
	Found int
	Steps []Step
}

// Step is one thing that happens.
type Step struct {
	At   time.Duration // since the beginning
	Verb string
	Args []string
}

// verbs are the steps that there are, with the number of their arguments. The last argument
// may have spaces.
var verbs = map[string]int{
	// Operation, collection, id, If-Match (-: none, last: the present etag) and body. Behind the If-Match
	// may come +keep, for the clock, +at and milliseconds, for an absolute deadline so long after now, or +till, for a
	// limit of the TTL;
	// then +to: and a target.
	"write":  5,
	"flood":  3, // number, collection, body: writes of so many documents (f0, f1 …) at one instant
	"config": 3, // collection, If-Match, body
	"drop":   2, // collection, If-Match
	"raw":    2, // subject, body
	"repeat": 0, // the last message again, with its message id
	"read":   4, // process, collection, id, and after how long it appends the touch if the document slides
	"list":   0, // what Redis has now is listed once the history is over
	// Collection, documents of a page (behind them may come +count or +scan), from page to page, order (none: none) and
	// conditions: a query in pages, of what Redis has then.
	"query": 5,

	"start":      1, // process: unless it runs
	"kill":       1, // process
	"end":        1, // process: cleanly
	"stand":      2, // process, duration: it stands still, as by SIGSTOP
	"believe":    2, // process, yes or no: that it owns the shard
	"disconnect": 2, // process, what becomes of what it has sent: lost, or a duration after which it arrives

	"nats-lose":  3, // requests or answers, percent, duration
	"nats-slow":  2, // milliseconds, duration
	"nats-hang":  1, // duration
	"nats-lag":   2, // messages, duration: stream info and direct gets are out of date
	"nats-mute":  1, // duration: JetStream does not answer publications
	"nats-clock": 1, // ahead of the processes
	"nats-away":  1, // duration: there is no connection
	"nats-dry":   1, // duration: consumers answer, and bring no messages

	"log-tail":      1, // messages: the log loses its last ones
	"log-truncate":  1, // messages: the log keeps the last ones that are not applied, and so many
	"log-anew":      0, // the log is deleted, and made anew
	"log-gap":       1, // messages: the log loses the one before so many of its last ones
	"log-refuse":    1, // duration
	"events-refuse": 1, // duration
	"events-age":    0, // all events are removed
	"events-size":   2, // bytes, duration: max_msg_size

	// Each names streams, and how many of their last messages each of them loses:
	// log 3 events 10 checkpoints 1 snapshots 2.
	"power-loss":    1, // the server starts anew, and connections are lost
	"leader-change": 1, // the new leader of each stream lacks the end; connections stay

	"snapshot":        0, // somebody asks for a snapshot
	"snapshot-lose":   1, // which object: its generation is lost
	"snapshot-damage": 1, // which object

	"redis-lose":     3, // requests or answers, percent, duration
	"redis-slow":     2, // milliseconds, duration
	"redis-hang":     1, // duration
	"redis-clock":    1, // ahead of the processes
	"redis-flush":    0,
	"redis-save":     0,
	"redis-rollback": 0, // to the last save
	"redis-restart":  0,
	"redis-full":     1, // duration
	"redis-damage":   2, // what (document, index, entry, config, state), number
	"redis-evicts":   1, // duration: by its configuration it may evict keys

	// Of the second region, if there is one, and of the link between both. What is log, events, questions or all.
	"link-cut":       1, // duration: it is down
	"link-hold":      2, // what, duration: it is up, and that does not come
	"link-slow":      3, // what, milliseconds, duration
	"link-old":       1, // duration: questions are answered as of the beginning
	"far-start":      0, // its process, unless it runs
	"far-kill":       0,
	"far-stand":      1, // duration
	"far-disconnect": 0,
	"far-flush":      0, // its Redis
	"far-slow":       2, // its Redis: milliseconds, duration
	"promote":        1, // how: handover, lost (the first region, and the link), or force

	"says": 1, // what the first process says of its health, or a part of it; ready: nothing
}

// String writes a plan as Parse reads it.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nprocesses %d\nreplicas %d\nwindow %s\nsync %s\nahead %d\n", p.Seed, p.Processes,
		p.Replicas, p.Window, p.Sync, p.ReadAhead)
	if p.Region {
		b.WriteString("region true\n")
	}
	if p.Found > 0 {
		fmt.Fprintf(&b, "found %d\n", p.Found)
	}
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "%s %s\n", s.At, s)
	}
	return b.String()
}

func (s Step) String() string { return strings.TrimSpace(s.Verb + " " + strings.Join(s.Args, " ")) }

// Parse reads what String wrote. Empty lines, and those that begin with #, count for nothing.
func Parse(text string) (*Plan, error) {
	p := &Plan{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := p.parse(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return p, nil
}

func (p *Plan) parse(line string) (err error) {
	first, rest, _ := strings.Cut(line, " ")
	switch first {
	case "seed":
		p.Seed, err = strconv.ParseUint(rest, 10, 64)
	case "processes":
		p.Processes, err = strconv.Atoi(rest)
	case "replicas":
		p.Replicas, err = strconv.Atoi(rest)
	case "window":
		p.Window, err = time.ParseDuration(rest)
	case "sync":
		p.Sync, err = time.ParseDuration(rest)
	case "region":
		p.Region, err = strconv.ParseBool(rest)
	case "found":
		p.Found, err = strconv.Atoi(rest)
	case "ahead":
		p.ReadAhead, err = strconv.Atoi(rest)
	default:
		s := Step{}
		if s.At, err = time.ParseDuration(first); err != nil {
			return err
		}
		s.Verb, rest, _ = strings.Cut(rest, " ")
		n, ok := verbs[s.Verb]
		if !ok {
			return fmt.Errorf("there is no step %q", s.Verb)
		}
		if n > 0 {
			s.Args = strings.SplitN(rest, " ", n)
		}
		for len(s.Args) < n {
			s.Args = append(s.Args, "")
		}
		p.Steps = append(p.Steps, s)
	}
	return err
}

// Number reads an argument; 0 if it is not a number.
func (s Step) Number(i int) int {
	n, _ := strconv.Atoi(s.Args[i])
	return n
}

// Duration reads an argument; 0 if it is not a duration.
func (s Step) Duration(i int) time.Duration {
	d, _ := time.ParseDuration(s.Args[i])
	return d
}

// Lasts reports whether a person may have to decide after a step.
func (s Step) Lasts() bool {
	return slices.Contains(lasting, s.Verb) || s.Verb == "log-gap" || s.Verb == "redis-damage" && s.Args[0] == "state"
}

// Lost is what the streams lose in a step: the number of messages, by stream.
func (s Step) Lost() map[string]int {
	lost := map[string]int{}
	for pair := range slices.Chunk(strings.Fields(s.Args[0]), 2) {
		lost[pair[0]], _ = strconv.Atoi(pair[len(pair)-1])
	}
	return lost
}
