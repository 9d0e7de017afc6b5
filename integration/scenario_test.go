package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// scenario is a history in a form that a person can read and write, one line per message:
//
//	# A comment.
//	+0      200 config.c {"defaultTtl":1}
//	+10     201 write.create.c.a {"v":1}
//	@2+700  200 write.touch.c.a [Lapse-If-Match: #2]
//	@2+1300 412 write.upsert.c.a [Lapse-If-Match: #2] {"v":2}
//	+1500   end
//	expired c/a 3
//
// A line begins with its time: +N is N milliseconds after the line before, @L+N after the
// stamp of line L. Then come the status of the outcome (- if it is not given), the subject
// without its prefix, the headers, and the body, as it is or as a Go string after a q. In a
// header #L is the sequence of line L, and @N the instant N milliseconds after it is sent. The line "end" sends
// nothing. At the end the
// scenario may list all expirations in the order of their instants: the document, and the
// line that wrote the version.
type scenario struct {
	comments []string
	steps    []step
	given    bool // the scenario gives outcomes and expirations
	expired  []string
}

// step is a line. Lines are counted from 1.
type step struct {
	of      int // the line from whose stamp the time counts; 0 for the line before
	after   int // milliseconds
	status  int // 0 if it is not given
	subject string
	header  nats.Header
	body    string
}

const end = "end"

var (
	timePattern = regexp.MustCompile(`^(?:\+(\d+)|@(\d+)\+(\d+))$`)
	etagPattern = regexp.MustCompile(`^#(\d+)$`)
	// instantPattern is an instant in a header, in milliseconds after the message is sent.
	instantPattern = regexp.MustCompile(`@-?\d+`)
)

func (s scenario) String() string {
	var b strings.Builder
	for _, c := range s.comments {
		fmt.Fprintf(&b, "# %s\n", c)
	}
	for _, st := range s.steps {
		fmt.Fprintln(&b, st)
	}
	for _, e := range s.expired {
		fmt.Fprintf(&b, "expired %s\n", e)
	}
	if s.given && len(s.expired) == 0 {
		fmt.Fprintln(&b, "expired none")
	}
	return b.String()
}

func (st step) String() string {
	at := fmt.Sprintf("+%d", st.after)
	if st.of > 0 {
		at = fmt.Sprintf("@%d+%d", st.of, st.after)
	}
	if st.subject == end {
		return fmt.Sprintf("%-8s %s", at, end)
	}
	status := "-"
	if st.status != 0 {
		status = strconv.Itoa(st.status)
	}
	line := fmt.Sprintf("%-8s %-3s %s", at, status, st.subject)
	if len(st.header) > 0 {
		var all []string
		for name, values := range st.header {
			for _, v := range values {
				all = append(all, name+": "+v)
			}
		}
		slices.Sort(all)
		line += " [" + strings.Join(all, "; ") + "]"
	}
	switch {
	case st.body == "":
	case strings.ContainsFunc(st.body, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }),
		strings.HasPrefix(st.body, " "), strings.HasPrefix(st.body, "["), strings.HasPrefix(st.body, "q"):
		line += " q" + strconv.Quote(st.body)
	default:
		line += " " + st.body
	}
	return line
}

func parseScenario(text string) (scenario, error) {
	var s scenario
	for i, line := range strings.Split(text, "\n") {
		if err := s.parseLine(line); err != nil {
			return s, fmt.Errorf("line %d: %q: %w", i+1, line, err)
		}
	}
	if len(s.steps) == 0 {
		return s, errors.New("the scenario has no message")
	}
	return s, nil
}

func (s *scenario) parseLine(line string) error {
	switch {
	case line == "":
		return nil
	case strings.HasPrefix(line, "#"):
		s.comments = append(s.comments, strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
		return nil
	case line == "expired none":
		s.given = true
		return nil
	case strings.HasPrefix(line, "expired "):
		s.given = true
		s.expired = append(s.expired, strings.TrimPrefix(line, "expired "))
		return nil
	}
	at, rest, _ := strings.Cut(line, " ")
	m := timePattern.FindStringSubmatch(at)
	if m == nil {
		return errors.New("the time must be +N or @L+N")
	}
	var st step
	st.of, _ = strconv.Atoi(m[2]) // digits, or none
	st.after, _ = strconv.Atoi(m[1] + m[3])
	if st.of > len(s.steps) {
		return errors.New("the time must refer to an earlier line")
	}
	if rest = strings.TrimLeft(rest, " "); rest == end {
		st.subject = end
		s.steps = append(s.steps, st)
		return nil
	}
	status, rest, _ := strings.Cut(rest, " ")
	if status != "-" {
		var err error
		if st.status, err = strconv.Atoi(status); err != nil {
			return errors.New("the status must be a number or -")
		}
	}
	st.subject, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	if headers, ok := strings.CutPrefix(rest, "["); ok {
		var closed bool
		if headers, rest, closed = strings.Cut(headers, "]"); !closed {
			return errors.New("the headers must end with ]")
		}
		rest = strings.TrimPrefix(rest, " ")
		st.header = nats.Header{}
		last := ""
		for _, h := range strings.Split(headers, "; ") {
			name, value, begins := strings.Cut(h, ": ")
			switch {
			case !begins && last == "":
				return errors.New("a header must have a name and a value")
			case !begins: // the value before has the separator in it
				values := st.header[last]
				values[len(values)-1] += "; " + h
				continue
			}
			last = name
			st.header[name] = append(st.header[name], value)
		}
	}
	st.body = rest
	if strings.HasPrefix(rest, "q") {
		var err error
		if st.body, err = strconv.Unquote(rest[1:]); err != nil {
			return errors.New("after q there must be a Go string")
		}
	}
	s.steps = append(s.steps, st)
	return nil
}

const scenarioDir = "testdata/scenarios"

// TestScenariosAreWrittenAsTheyAreRead: a scenario that is written and parsed again is the same.
func TestScenariosAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	generated := scenario{comments: []string{"x"}, given: true, expired: []string{"c/a 1"}, steps: []step{
		{after: 3, subject: "write.upsert.c.a", status: 400, body: "\xff [q"},
		{of: 1, after: 1000, subject: "write.touch.c.a", header: nats.Header{"Lapse-If-Match": {"#1", "*"}}},
		{subject: "write.upsert.c.a", body: "[]"}, {subject: "write.upsert.c.a", body: "q"}, {after: 5, subject: end},
	}}
	for seed := range 50 {
		checkRoundTrip(t, histories.Example(seed))
	}
	checkRoundTrip(t, generated)
	files, err := filepath.Glob(filepath.Join(scenarioDir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v", scenarioDir, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseScenario(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if diff := cmp.Diff(string(text), s.String()); diff != "" {
			t.Errorf("%s is not in the form in which a scenario is written (-file +written):\n%s", file, diff)
		}
	}
}

func checkRoundTrip(t *testing.T, s scenario) {
	t.Helper()
	again, err := parseScenario(s.String())
	if err != nil {
		t.Fatalf("%v in\n%s", err, s)
	}
	if diff := cmp.Diff(s.String(), again.String()); diff != "" {
		t.Fatal(diff)
	}
}
