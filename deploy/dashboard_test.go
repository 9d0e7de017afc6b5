package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// dashboard is the part of a Grafana dashboard that the tests look at.
type dashboard struct {
	Templating struct {
		List []struct{ Name string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ UID string }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ Expr, LegendFormat string }
}

func loadDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "grafana/lapse.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The dashboard has its rows and variables. Each panel has a title, a description, a unit, the
// data source that the reader has chosen, and a place of its own.
func TestDashboardIsComplete(t *testing.T) {
	t.Parallel()
	d := loadDashboard(t)
	var rows, variables []string
	ids := map[int]bool{}
	places := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if places[at] != "" || at[0] >= 24 {
					t.Errorf("%s covers %q, or is too wide", p.Title, places[at])
				}
				places[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		units := []string{"s", "short", "none", "bytes", "eps", "mps", "reqps"}
		if len(p.Description) < 30 || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" || !slices.Contains(units, p.FieldConfig.Defaults.Unit) {
			t.Errorf("%s lacks a description, a query, a unit or the data source: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `job=~"$job", instance=~"$instance"`) || target.LegendFormat == "" {
				t.Errorf("%s has a query that does not obey the variables, or has no legend: %+v", p.Title, target)
			}
		}
	}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if want := []string{"What users notice", "Traffic", "State", "Shards", "Regions", "Health", "Resources"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	if want := []string{"datasource", "job", "instance"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %q, want %q", variables, want)
	}
}

// selector is a metric with its label matchers in a PromQL expression.
var (
	selector = regexp.MustCompile(`\b(up|(?:lapse|process|go|job:lapse|job_shard:lapse)_[a-z0-9_:]+)(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"`)
	grouping = regexp.MustCompile(`\b(?:by|on) \(([^)]*)\)`)
)

// used returns an expression for each metric that a query names, which finds it with the labels
// that the query matches, and the labels that the query groups by.
func used(query string) (metrics, labels []string) {
	for _, match := range selector.FindAllStringSubmatch(query, -1) {
		metric := match[1]
		var with []string
		for _, label := range matcher.FindAllStringSubmatch(match[2], -1) {
			with = append(with, label[1]+`!=""`)
		}
		metrics = append(metrics, metric+"{"+strings.Join(with, ",")+"}")
	}
	for _, match := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(match[1], ",") {
			labels = append(labels, strings.TrimSpace(label))
		}
	}
	return metrics, labels
}

// follower starts a region that follows another one, and returns the NATS of the first and its own lapse.
func follower(t *testing.T, flags ...string) (*harness.NATS, *harness.Lapse) {
	t.Helper()
	leaf := harness.Address(harness.FreePort(t))
	region := func(domain, leafnodes string) *harness.NATS {
		n := harness.PrepareNATS(t, "nats-"+domain, fmt.Sprintf("jetstream { domain: %s, store_dir: %q }\nleafnodes { %s }\n", domain, t.TempDir(), leafnodes))
		n.Start()
		return n
	}
	a := region("a", fmt.Sprintf("listen: %q", leaf))
	b := region("b", fmt.Sprintf(`reconnect: "1s", remotes: [ { urls: ["nats-leaf://leaf:%s@%s"], account: LAPSE } ]`, harness.RolePassword("LEAF"), leaf))
	harness.StartLapse(t, a.URL(), harness.StartRedis(t, harness.RedisOptions{}).Address())
	return a, harness.StartLapse(t, b.URL(), harness.StartRedis(t, harness.RedisOptions{}).Address(), append(flags, "--follow", "a")...)
}

// A Prometheus scrapes two processes on real servers, one with embedded servers and four
// shards, and one that follows another region, under load. Each query of the dashboard returns data. Each metric that a rule names is
// there, with the labels that the rule names, and each rule can be evaluated.
//
// It fails if somebody renames a metric or a label, and not its queries; if a query does not
// expect a series for each shard.
func TestQueriesReturnData(t *testing.T) {
	t.Parallel()
	nats := harness.StartNATS(t, harness.NATSOptions{})
	redis := harness.StartRedis(t, harness.RedisOptions{Args: []string{"--maxmemory", "1gb"}})
	one := harness.StartLapse(t, nats.URL(), redis.Address(), "--log-max-bytes", "1GiB")
	two := harness.StartLapse(t, nats.URL(), redis.Address())
	embedded := harness.EmbeddedLapse(t, "--shards", "4")
	_, follows := follower(t)
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, rules, map[string][]string{"lapse": {one.HTTP, two.HTTP}, "lapse-embedded": {embedded.HTTP}, "lapse-follower": {follows.HTTP}})
	c := harness.NewClient(t, nats.URL(), "")
	c.Configure("c", `{"defaultTtl":1}`)
	web := http.Client{Timeout: harness.Limit, Transport: &http.Transport{DisableKeepAlives: true}}
	n := 0
	load := func() {
		n++
		c.Write(wire.Upsert, "c", fmt.Sprint("doc-", n), `{"text":"a document"}`)
		c.Write(wire.Create, "c", "bad", `{"ttl":0}`)
		c.Found("c", fmt.Sprint("doc-", n))
		resp, err := web.Get("http://" + one.HTTP + "/v1/collections/c")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	returns := func(what, query string) {
		harness.Until(t, harness.Limit, fmt.Sprintf("%s: %s returns data", what, query), func(ctx context.Context) error {
			load()
			result, err := p.query(ctx, query)
			if err != nil {
				return err
			}
			for _, s := range result {
				if v := s.number(); !math.IsNaN(v) && !math.IsInf(v, 0) {
					return nil
				}
			}
			return errors.New("it returns nothing")
		})
	}
	variables := strings.NewReplacer("$__rate_interval", "30s", "$job", ".*", "$instance", ".*")
	queries := 0
	for _, panel := range loadDashboard(t).Panels {
		for _, target := range panel.Targets {
			returns(panel.Title, variables.Replace(target.Expr))
			queries++
		}
	}
	if queries < 40 {
		t.Errorf("the dashboard has only %d queries", queries)
	}
	for _, r := range p.rules() {
		if r.LastError != "" {
			t.Errorf("%s cannot be evaluated: %s", r.Name, r.LastError)
		}
		metrics, labels := used(r.Query)
		if len(metrics) == 0 {
			t.Errorf("%s names no metric that this test knows: %s", r.Name, r.Query)
		}
		for _, metric := range metrics {
			returns(r.Name, metric)
		}
		for _, label := range labels {
			returns(r.Name, fmt.Sprintf(`{__name__=~"up|lapse_.*",%s!=""}`, label))
		}
		if r.Type == "alerting" && (r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
			r.Labels["severity"] != "page" && r.Labels["severity"] != "warning") {
			t.Errorf("%s lacks a summary, a description or a severity: %+v", r.Name, r)
		}
	}
}
