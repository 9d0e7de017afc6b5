package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed18712806/lapse/sink/client"
)

// picture is the size of the picture of the console in the README.
var picture = screen{"picture", 1200, 566}

// TestPictures makes the picture of the console in the README, light and dark: of a real lapse with a shop's
// documents. With LAPSE_PICTURES the pictures go into that directory (see .github/images/make); without, they only
// must not be empty.
func TestPictures(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("LAPSE_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}
	r := startRig(t)
	shop(t, r)
	b := r.tab(t)
	b.size(picture)
	b.open("/console/collections/sessions")
	b.untilText("h1", "sessions")
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if len(shot) < 10_000 {
			t.Errorf("the picture (%s) has %d bytes", theme, len(shot))
		}
		if err := os.WriteFile(filepath.Join(dir, "console-"+theme+".png"), shot, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// shop writes the documents of a shop, which expire over the next hour.
func shop(t *testing.T, r *rig) {
	t.Helper()
	const sessions, carts = 400, 60
	c, err := client.Open[document](r.client, "sessions")
	if err != nil {
		t.Fatal(err)
	}
	config := client.Config{DefaultTTL: 30 * time.Minute, SlideOnRead: true, WarnBefore: []time.Duration{5 * time.Minute}}
	if _, err := c.Configure(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	batch, err := c.Batch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	users := []string{"ada", "bo", "cy", "dot", "eve", "fay"}
	for i := range sessions {
		// More of them end soon than late, in waves.
		ttl := time.Duration(30+i*i*3400/(sessions*sessions)+(i%7)*25) * time.Second
		session := document{"user": users[i%len(users)], "device": []string{"phone", "laptop"}[i%2]}
		if err := batch.Create(t.Context(), fmt.Sprintf("s%03d", i), session, client.TTL(ttl)); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	for name, ttl := range map[string]time.Duration{"carts": day, "holds": client.Never, "visitors": 30 * day} {
		c := r.collection(t, name, ttl)
		for i := range carts {
			put(t, c, fmt.Sprintf("%c%d", 'A'+i%8, i), document{"n": i})
		}
	}
}
