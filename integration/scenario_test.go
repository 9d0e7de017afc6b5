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

// scenario is a history as a person reads and writes it, one line per message:
//
//	# A comment.
//	+0      200 config.c {"defaultTtl":1}
//	+10     201 write.create.c.a {"v":1}
//	@2+700  200 write.touch.c.a [Lapse-If-Match: #2]
//	@2+1300 412 write.upsert.c.a [Lapse-If-Match: #2] {"v":2}
//	+1500   end
//	expired c/a 3
//
// First comes the time: +N is milliseconds after the line before, @L+N after
// the stamp of line L, so that a deadline is met from both sides. Then the
// status of the outcome (- if it is not told), the subject without its prefix,
// the headers, and the body, as it is or as a Go string after a q. In a header
// #L is the sequence of line L. The line "end" sends nothing. Then, if told,
// come all expirations in order of their instants: the document, and the line
// that wrote the version.
type scenario struct {
	comments []string
	steps    []step
	told     bool // the outcomes and the expirations are
	expired  []string
}

// step is a line; lines are counted from 1.
type step struct {
	of      int // line whose stamp the time counts from; 0: from the line before
	after   int // milliseconds
	status  int // 0 if not told
	subject string
	header  nats.Header
	body    string
}

const end = "end"

var (
	timePattern = regexp.MustCompile(`^(?:\+(\d+)|@(\d+)\+(\d+))$`)
	etagPattern = regexp.MustCompile(`^#(\d+)$`)
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
	if s.told && len(s.expired) == 0 {
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
		return s, errors.New("no message")
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
		s.told = true
		return nil
	case strings.HasPrefix(line, "expired "):
		s.told = true
		s.expired = append(s.expired, strings.TrimPrefix(line, "expired "))
		return nil
	}
	at, rest, _ := strings.Cut(line, " ")
	m := timePattern.FindStringSubmatch(at)
	if m == nil {
		return errors.New("the time is not +N or @L+N")
	}
	var st step
	st.of, _ = strconv.Atoi(m[2]) // digits, or none
	st.after, _ = strconv.Atoi(m[1] + m[3])
	if st.of > len(s.steps) {
		return errors.New("it refers to a line that comes later")
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
			return errors.New("the status is no number and not -")
		}
	}
	st.subject, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	if headers, ok := strings.CutPrefix(rest, "["); ok {
		var closed bool
		if headers, rest, closed = strings.Cut(headers, "]"); !closed {
			return errors.New("no ] after the headers")
		}
		rest = strings.TrimPrefix(rest, " ")
		st.header = nats.Header{}
		for _, h := range strings.Split(headers, "; ") {
			name, value, _ := strings.Cut(h, ": ")
			st.header[name] = append(st.header[name], value)
		}
	}
	st.body = rest
	if strings.HasPrefix(rest, "q") {
		var err error
		if st.body, err = strconv.Unquote(rest[1:]); err != nil {
			return errors.New("after q comes no Go string")
		}
	}
	s.steps = append(s.steps, st)
	return nil
}

const scenarioDir = "testdata/scenarios"

// What is written can be read again, and is the same.
func TestScenariosAreWrittenAsTheyAreRead(t *testing.T) {
	t.Parallel()
	generated := scenario{comments: []string{"x"}, told: true, expired: []string{"c/a 1"}, steps: []step{
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
			t.Errorf("%s is not as it would be written:\n%s", file, diff)
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
