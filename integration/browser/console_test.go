package browser

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/seed18712806/lapse/integration/harness"
)

// TestConsole has all tests of the console, because they share a lapse and a browser. Most run
// beside each other, each on a collection of its own.
func TestConsole(t *testing.T) {
	r := startRig(t)
	t.Run("reports", r.reports)
	t.Run("empty", r.empty) // before there is anything
	t.Run("beside", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"documents": r.documents, "expiry": r.expiry, "conflict": r.conflict, "hostile": r.hostile,
			"overview": r.overview, "many": r.many, "queries": r.queries, "configure": r.configure, "drop": r.drop,
			"live":     r.live,
			"keyboard": r.keyboard, "plain": r.plain, "signIn": r.signIn, "demo": r.demo,
			"changes": r.changes, "leave": r.leave, "consumers": r.consumers,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("history", r.history) // for which it must have run for a while
	t.Run("killed", r.killed)
}

// reports: the tests see what is wrong, on a page in which everything is.
func (r *rig) reports(t *testing.T) {
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/" {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-a'; style-src 'unsafe-inline'; "+
			"img-src *")
		_, _ = io.WriteString(w, `<html><body><p style="width:500px">wide</p><p style="color:#ddd">pale</p>
			<script nonce="a">console.warn("a warning"); setTimeout(() => { throw new Error("thrown") })</script>
			<script>document.title = "inline"</script><img src="/missing"></body></html>`)
	}))
	defer bad.Close()
	b := r.tab(t)
	b.do("open the page", chromedp.Navigate(bad.URL))
	reported := ""
	harness.Until(t, harness.Limit, "the browser reports it all", func(context.Context) error {
		reported += strings.Join(b.seen(), "\n")
		for _, want := range []string{"to another host", "console.warning: ", "Error: thrown", "Content Security Policy",
			"404 (Not Found)"} {
			if !strings.Contains(reported, want) {
				return fmt.Errorf("%q is not in:\n%s", want, reported)
			}
		}
		return nil
	})
	b.expect(bad.URL) // the browser also looks for an icon
	found := strings.Join(b.look(phone, "light"), "\n")
	for _, want := range []string{"pixels wide", "color-contrast", "html-has-lang"} {
		if !strings.Contains(found, want) {
			t.Errorf("nothing is found about %s:\n%s", want, found)
		}
	}
}
