// Package deploy has the tests of the alerts, of the dashboard and of the runbook. They use
// promtool and Prometheus itself, and a lapse that runs.
package deploy

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	rulesFile = "prometheus/lapse.rules.yaml"
	runbook   = "https://github.com/seed18712806/lapse/blob/main/deploy/docs/runbook.md#"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var alertName = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)

// alerts returns the names of the alerts in the file of rules.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, match := range alertName.FindAllStringSubmatch(read(t, rulesFile), -1) {
		names = append(names, match[1])
	}
	if len(names) < 15 {
		t.Fatalf("found only the alerts %v", names)
	}
	return names
}

// promtool accepts the configuration and the rules, and the rule tests pass. For each alert
// there is a test in which it fires, and one in which it does not.
//
// It fails if an alert has no rule test.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool := tool(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yaml"},
		{"check", "rules", "lapse.rules.yaml"},
		{"test", "rules", "lapse.rules.test.yaml"},
	} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests := read(t, "prometheus/lapse.rules.test.yaml")
	for _, name := range alerts(t) {
		if !regexp.MustCompile(`alertname: ` + name + `\n *exp_alerts:\n`).MatchString(tests) {
			t.Errorf("no rule test fires %s", name)
		}
		if !strings.Contains(tests, "alertname: "+name+", exp_alerts: []") {
			t.Errorf("no rule test holds that a healthy lapse does not fire %s", name)
		}
	}
}

// problems returns the names of all problems that /readyz can name: those of each health.Problem
// that the source makes. Each has an advice, and each name stands in one place.
func problems(t *testing.T) (names []string) {
	t.Helper()
	for _, root := range []string{"../processor", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				made, ok := n.(*ast.CompositeLit)
				if !ok || types.ExprString(made.Type) != "health.Problem" {
					return true
				}
				fields := map[string]string{"Name": `""`}
				for _, e := range made.Elts {
					pair := e.(*ast.KeyValueExpr)
					fields[types.ExprString(pair.Key)] = types.ExprString(pair.Value)
				}
				name, err := strconv.Unquote(fields["Name"])
				if err != nil || fields["Advice"] == "" || slices.Contains(names, name) {
					t.Errorf("%s: the problem %v has no advice, or a name that is not a text, or that another has", path, fields)
				}
				if name != "" {
					names = append(names, name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	return names
}

// runbookLinks calls see with each heading of the runbook that the source links to by health.Runbook.
func runbookLinks(t *testing.T, see func(path, anchor string)) {
	t.Helper()
	call := regexp.MustCompile(`health\.Runbook\("([^"]*)"\)`)
	for _, root := range []string{"../processor", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") {
				return err
			}
			for _, match := range call.FindAllStringSubmatch(read(t, path), -1) {
				see(path, match[1])
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRunbook: each alert has a section in the runbook. The sections about problems are those of the problems that
// lapse can name, and /readyz, the log and the console link to them. So do the messages that name a heading.
// (integration/documents tests the links of the documents themselves.)
//
// It fails if somebody adds a problem or an alert without telling what to do about it, or removes a
// problem alone.
func TestRunbook(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/runbook.md")
	sections := documents.Anchors(text)
	var told []string
	for _, match := range regexp.MustCompile(`(?m)^### Problem: (.*)$`).FindAllStringSubmatch(text, -1) {
		told = append(told, match[1])
	}
	slices.Sort(told)
	named := problems(t)
	if diff := cmp.Diff(named, told); diff != "" {
		t.Errorf("the problems that lapse names (-), and those of deploy/docs/runbook.md (+):\n%s", diff)
	}
	for _, name := range append(named, "") {
		section, ok := strings.CutPrefix(health.Problem{Name: name}.Link(), runbook)
		if !ok || !sections[section] {
			t.Errorf("the problem %q links to %s, and deploy/docs/runbook.md has no such section", name, section)
		}
	}
	messages := 0
	runbookLinks(t, func(path, section string) {
		messages++
		if !sections[section] {
			t.Errorf("%s links to #%s, and deploy/docs/runbook.md has no such section", path, section)
		}
	})
	if messages < 2 {
		t.Errorf("%d messages link to the runbook", messages)
	}
	folder := strings.TrimSuffix(runbook, "docs/runbook.md#")
	guide, anchor, _ := strings.Cut(strings.TrimPrefix(health.Regions, folder), "#")
	if !documents.Anchors(read(t, guide))[anchor] {
		t.Errorf("the link %s leads nowhere", health.Regions)
	}
	links := regexp.MustCompile(`(?m)^ *runbook_url: (.*)$`).FindAllStringSubmatch(read(t, rulesFile), -1)
	if len(links) != len(alerts(t)) {
		t.Errorf("%d alerts have %d links to the runbook", len(alerts(t)), len(links))
	}
	for _, match := range links {
		section, ok := strings.CutPrefix(match[1], runbook)
		if !ok {
			t.Errorf("%s does not lead to %s", match[1], runbook)
		}
		if section != `problem-{{ reReplaceAll " " "-" (toLower $labels.problem) }}` && !sections[section] {
			t.Errorf("deploy/docs/runbook.md has no section #%s", section)
		}
	}
}

// fire is a Prometheus with the rules, which fire after a second.
func fire(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	text := read(t, rulesFile)
	short := regexp.MustCompile(`(?m)^( *for: )\S+$`).ReplaceAllString(text, "${1}1s")
	if short == text {
		t.Fatal("the rules have no times")
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	return startPrometheus(t, path, map[string][]string{"lapse": targets})
}

// fires waits until alerts fire.
func (p *prometheus) fires(names ...string) {
	p.t.Helper()
	harness.Until(p.t, harness.Limit, fmt.Sprintf("%v fire", names), func(ctx context.Context) error {
		firing, err := p.firing(ctx)
		for _, name := range names {
			if err == nil && !slices.Contains(firing, name) {
				err = fmt.Errorf("%s does not; these do: %v", name, firing)
			}
		}
		return err
	})
}

// quiet waits until no alert fires about what a test has done. Alerts that look at a rate of
// five minutes go on for so long, and are not waited for.
func (p *prometheus) quiet() {
	p.t.Helper()
	rates := []string{"LapseEventsLate", "LapseReadsFailing", "LapseRejections", "LapseRestarts", "LapseOwnerChangesOften"}
	harness.Until(p.t, harness.Limit, "no alert fires", func(ctx context.Context) error {
		firing, err := p.firing(ctx)
		firing = slices.DeleteFunc(firing, func(name string) bool { return slices.Contains(rates, name) })
		if err == nil && len(firing) > 0 {
			err = fmt.Errorf("these do: %v", firing)
		}
		return err
	})
}

// A lapse with a standby loses NATS, Redis, what Redis has of its shard, and its processes, one after the
// other. Prometheus fires the alerts that are about it, and none once it is over.
//
// It fails if an alert asks for what a lapse in trouble does not report.
func TestG11_AlertsFire(t *testing.T) {
	t.Parallel()
	nats := harness.StartNATS(t, harness.NATSOptions{})
	redis := harness.StartRedis(t, harness.RedisOptions{Persistent: true})
	one := harness.StartLapse(t, nats.URL(), redis.Address())
	two := harness.StartLapse(t, nats.URL(), redis.Address())
	c := harness.NewClient(t, nats.URL(), "")
	c.Configure("c", `{"defaultTtl":-1}`)
	c.Want(201, wire.Upsert, "c", "a", `{}`)
	p := fire(t, one.HTTP, two.HTTP)
	p.quiet()

	nats.Kill()
	p.fires("LapseNotReady", "LapseProblem/NATS", "LapseProblem/reads")
	nats.Start()
	p.quiet()

	redis.Stop()
	p.fires("LapseNotReady", "LapseProblem/Redis", "LapseProblem/reads")
	redis.Continue()
	p.quiet()

	client := redis.Client()
	keys, err := client.Keys(t.Context(), "lapse:{*:state").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("found no shard in Redis: %v", err)
	}
	state, err := client.Dump(t.Context(), keys[0]).Result()
	if err == nil {
		err = client.Set(t.Context(), keys[0], "of somebody else", 0).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.fires("LapseShardFailing", "LapseNotReady", "LapseProblem/shard")
	if err := client.RestoreReplace(t.Context(), keys[0], 0, state).Err(); err != nil {
		t.Fatal(err)
	}
	p.quiet()

	one.Kill()
	p.fires("LapseTargetGone")
	two.Kill()
	p.fires("LapseDown")
	one.Start()
	two.Start()
	p.quiet()
}

// A region that follows another one is cut off from it. The alerts that are about it fire, and none once the first
// region answers again.
//
// It fails if an alert asks for what such a region does not report.
func TestG11_AlertsFireInARegion(t *testing.T) {
	t.Parallel()
	first, follows := follower(t, "--max-staleness", "3s")
	p := fire(t, follows.HTTP)
	p.quiet()
	first.Kill()
	p.fires("LapseRegionCutOff", "LapseProblem/stale", "LapseNotReady")
	first.Start()
	p.quiet()
}
