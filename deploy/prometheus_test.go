package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
)

// tool returns the path of a program of Debian's package prometheus.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", ".ci", "tools", "usr", "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if path, err = exec.LookPath(name); err != nil {
		t.Fatalf("%s is needed (Debian: package prometheus): run .ci/need, which extracts it into .ci/tools", name)
	}
	return path
}

// prometheus is a Prometheus server of a test.
type prometheus struct {
	*harness.Process
	t   *testing.T
	url string
}

// startPrometheus starts a server that scrapes every two seconds, which is also the limit of a
// scrape, and evaluates twice a second. It waits until the server is ready. Targets are the
// addresses of each job.
func startPrometheus(t *testing.T, rules string, targets map[string][]string) *prometheus {
	t.Helper()
	dir := t.TempDir()
	config := "global: {scrape_interval: 2s, evaluation_interval: 500ms}\n"
	if rules != "" {
		config += fmt.Sprintf("rule_files: [%q]\n", rules)
	}
	config += "scrape_configs:\n"
	for job, addresses := range targets {
		list, err := json.Marshal(addresses)
		if err != nil {
			t.Fatal(err)
		}
		config += fmt.Sprintf("  - job_name: %s\n    static_configs: [{targets: %s}]\n", job, list)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := harness.Address(harness.FreePort(t))
	p := &prometheus{t: t, url: "http://" + address}
	p.Process = harness.StartProcess(t, "prometheus", tool(t, "prometheus"),
		"--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	harness.Until(t, harness.Limit, "Prometheus is ready", func(ctx context.Context) error {
		if !p.Running() {
			t.Fatal("Prometheus has ended")
		}
		return p.get(ctx, "/api/v1/status/runtimeinfo", nil, &struct{}{})
	})
	return p
}

// get calls the HTTP API.
func (p *prometheus) get(ctx context.Context, path string, query url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	reply := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return fmt.Errorf("%s answers %s: %w", path, resp.Status, err)
	}
	if reply.Status != "success" {
		return fmt.Errorf("%s: %s", query.Encode(), reply.Error)
	}
	return nil
}

// sample is one series of an answer, with its last value.
type sample struct {
	Metric map[string]string
	Value  [2]any // a time and a number as text
}

func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	value, _ := strconv.ParseFloat(text, 64)
	return value
}

// query evaluates an expression now.
func (p *prometheus) query(ctx context.Context, expression string) ([]sample, error) {
	var data struct{ Result []sample }
	err := p.get(ctx, "/api/v1/query", url.Values{"query": {expression}}, &data)
	return data.Result, err
}

// firing returns the alerts that fire, each as its name and, after a slash, its problem.
func (p *prometheus) firing(ctx context.Context) (names []string, err error) {
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	if err := p.get(ctx, "/api/v1/alerts", nil, &data); err != nil {
		return nil, err
	}
	for _, a := range data.Alerts {
		if a.State == "firing" {
			names = append(names, strings.TrimSuffix(a.Labels["alertname"]+"/"+a.Labels["problem"], "/"))
		}
	}
	return names, nil
}

// rule is an alert, as Prometheus has read it.
type rule struct {
	Name, Query, Type   string
	LastError           string
	Labels, Annotations map[string]string
}

// rules returns the rules that the server has loaded.
func (p *prometheus) rules() (all []rule) {
	p.t.Helper()
	var data struct{ Groups []struct{ Rules []rule } }
	if err := p.get(p.t.Context(), "/api/v1/rules", nil, &data); err != nil {
		p.t.Fatal(err)
	}
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		p.t.Fatal(errors.New("Prometheus has loaded no rules"))
	}
	return all
}
