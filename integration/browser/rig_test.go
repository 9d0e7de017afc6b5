package browser

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
)

func TestMain(m *testing.M) { harness.Main(m) }

// rig is what all tests share.
type rig struct {
	lapse   *harness.Lapse
	client  *client.Client
	browser context.Context // of the browser; tabs derive theirs from it
	axe     string          // the text of axe-core
	shots   string          // the directory for pictures; none if empty
}

// startRig starts lapse and the browser until the test ends.
func startRig(t *testing.T) *rig {
	t.Helper()
	axe, err := os.ReadFile("../node/node_modules/axe-core/axe.min.js")
	if err != nil {
		t.Fatalf("%v: run .ci/need, which installs it", err)
	}
	r := &rig{axe: string(axe), shots: os.Getenv("LAPSE_SCREENSHOTS")}
	if r.shots != "" {
		if err := os.MkdirAll(r.shots, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	r.startBrowser(t)
	r.lapse = harness.EmbeddedLapse(t)
	r.connect(t)
	return r
}

// connect connects the client to lapse until the test ends.
func (r *rig) connect(t *testing.T) {
	t.Helper()
	var err error
	if r.client, err = client.Connect(client.Options{Server: r.lapse.NATSURL, Timeout: harness.Limit}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.client.Close)
}

func (r *rig) startBrowser(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: run .ci/need, which installs it", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en"),
		chromedp.WindowSize(int(desktop.width), int(desktop.height)),
	)
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	browser, stopBrowser := chromedp.NewContext(allocator, chromedp.WithErrorf(t.Logf))
	t.Cleanup(func() {
		defer stopBrowser()
		ending, cancel := context.WithTimeout(browser, harness.Limit)
		defer cancel()
		if err := chromedp.Cancel(ending); err != nil {
			t.Errorf("end the browser: %v", err)
		}
	})
	if err := chromedp.Do(browser); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	r.browser = browser
}

// document is any document.
type document = map[string]any

// collection opens a collection and configures it: a default TTL of 0 means that TTL is off.
func (r *rig) collection(t *testing.T, name string, defaultTTL time.Duration) *client.Collection[document] {
	t.Helper()
	c, err := client.Open[document](r.client, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Configure(t.Context(), client.Config{DefaultTTL: defaultTTL}); err != nil {
		t.Fatal(err)
	}
	return c
}

// put writes a document.
func put(t *testing.T, c *client.Collection[document], id string, d document, options ...client.Option) client.Written {
	t.Helper()
	w, err := c.Upsert(t.Context(), id, d, options...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// get reads a document as JSON, without white space.
func get(t *testing.T, c *client.Collection[document], id string) string {
	t.Helper()
	d, err := c.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(d.Value)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
