package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

var wireAll = wire.ListRequest{Limit: wire.MaxListLimit}

const (
	all    = `all;"0123456789,\abcdef`
	reader = "reader-0123456789abcdef"
	orders = "orders-0123456789abcdef"
)

// signedIn is a browser in which somebody has signed in.
func (r *rig) signedIn(t *testing.T, token string) *browser {
	t.Helper()
	b := r.browse(t)
	b.get("/").want(200, "Sign in").send("sign-in-form", "token", token).want(200, "Overview")
	return b
}

func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(all + " read-write\n" + reader + " read-only\n" + orders + " read-write orders,other\n")
	r := start(t, func(o *serve.Options) { o.HTTP.TokenFile = file })
	r.configure("orders", `{"defaultTtl":3600}`)
	r.configure("carts", `{"defaultTtl":3600}`)
	r.put("orders", "1", `{"of":"orders"}`)
	r.put("carts", "1", `{"of":"carts"}`)

	r.put("orders", "bad", `["secret"]`)
	r.put("carts", "bad", `["secret"]`)
	rejection := func(collection string) string {
		p := r.signedIn(t, all).get("/console/live?kind=rejections&collection=" + collection).want(200)
		return p.hrefs(fmt.Sprint(p.sequences()[0]))[0]
	}

	t.Run("nobody", func(t *testing.T) {
		b := r.browse(t)
		for _, path := range []string{"/", "/console/collections/orders",
			"/console/collections/orders/documents/1?view=raw", "/console/live", "/console/consumers", "/console/system",
			"/console/collections/orders/new"} {
			p := b.do("GET", path, nil)
			p.want(303)
			if got, want := p.Header.Get("Location"), "/console/sign-in?next="+url.QueryEscape(path); got != want {
				t.Errorf("%s leads to %s, want %s", path, got, want)
			}
			p.follow().want(200, "Token").without("orders ", "carts")
		}
		b.do("GET", "/console/live/stream", nil).want(401)
		for _, path := range []string{"/console/collections/orders/documents/1", "/console/collections/orders/drop",
			"/console/collections/orders/new", "/console/collections/orders/configure"} {
			b.do("POST", path, url.Values{"action": {"delete"}, "confirm": {"1"}}).want(401, "You are signed out",
				"Nothing was changed")
		}
		p := b.get("/console/collections/orders?within=24h")
		p.send("sign-in-form", "token", "wrong-0123456789abcdef").want(401, "lapse does not know this "+
			"token").without("wrong-0123456789")
		in := p.sendOnce("sign-in-form", "token", " "+all+"\n")
		cookie := in.Header.Get("Set-Cookie")
		for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
			if !strings.Contains(cookie, part) {
				t.Errorf("the cookie is %q, without %s", cookie, part)
			}
		}
		if strings.Contains(cookie, "Secure") || strings.Contains(cookie, "Max-Age") {
			t.Errorf("the cookie is %q", cookie)
		}
		in.follow().want(200, "orders", "24 hours")
		if in.Header.Get("Location") != "/console/collections/orders?within=24h" {
			t.Errorf("it leads to %s", in.Header.Get("Location"))
		}
		b.get("/").want(200, "orders", "carts", "Sign out").send("sign-out").want(200, "You are signed out", "Token")
		b.get("/").want(200, "Token")
		for _, next := range []string{"//example.com", "https://example.com/", "/\\example.com", "javascript:alert(1)",
			"", "x"} {
			p := b.get("/console/sign-in").sendOnce("sign-in-form", "token", all, "next", next)
			if got := p.Header.Get("Location"); got != "/" {
				t.Errorf("next %q leads to %q", next, got)
			}
		}
		b = r.browse(t)
		b.do("GET", "/console/system", nil, "Sec-Fetch-Site", "cross-site").follow().want(200,
			"A link on another site led you here")
	})

	t.Run("behind a proxy", func(t *testing.T) {
		r := start(t, func(o *serve.Options) { o.HTTP.TokenFile, o.HTTP.Proxies = file, []string{"127.0.0.1"} })
		b := r.browse(t)
		form := url.Values{"token": {all}}
		for proto, secure := range map[string]bool{"https": true, "http": false, "": false} {
			cookie := b.do("POST", "/console/sign-in", form, "X-Forwarded-Proto", proto).want(303).Header.Get("Set-Cookie")
			if strings.Contains(cookie, "Secure") != secure {
				t.Errorf("%q: the cookie is %q", proto, cookie)
			}
		}
	})

	t.Run("large forms", func(t *testing.T) {
		b := r.browse(t)
		large := url.Values{"token": {all}, "body": {strings.Repeat("x", 9<<10)}}
		b.do("POST", "/console/sign-in", large).want(413, "The form has")
		b.do("POST", "/console/nowhere", large).want(404)
	})

	t.Run("reads alone", func(t *testing.T) {
		b := r.signedIn(t, reader)
		b.get("/").want(200, "orders", "carts", "this token can only read")
		b.get("/console/collections/orders").want(200).without("drop-form", "New document", "Change…")
		b.get("/console/collections/orders/documents/1").want(200, `"orders"`).without("delete-form", `id="touch"`, "Edit…")
		p := b.get("/console/collections/orders/configure?mode=after&after=7d").want(200, "604,800 s (7 d)")
		if p.has("save") {
			t.Error("it can be saved")
		}
		b.get("/console/collections/orders/new").want(403, "can only read")
		form := url.Values{"confirm": {"orders"}, "mode": {"after"}, "after": {"7d"}, "id": {"2"}, "body": {"{}"}}
		for _, path := range []string{"drop", "configure", "new", "documents/1"} {
			for _, action := range []string{"touch", "replace", "delete"} {
				form.Set("action", action)
				if action == "delete" {
					form.Set("confirm", "1")
				}
				b.do("POST", "/console/collections/orders/"+path, form).want(403, "can only read")
			}
		}
		b.get("/console/live").want(200, "Expired documents")
		b.get("/console/consumers").want(200, "Dead letters").without("resend")
		b.do("POST", "/console/consumers/resend", url.Values{"name": {"forward-orders"}}).want(403, "can only read")
	})

	t.Run("some collections", func(t *testing.T) {
		b := r.signedIn(t, orders)
		b.get("/console/consumers").want(403, "not for all collections")
		b.do("POST", "/console/consumers/resend", url.Values{"name": {"forward-orders"}}).want(403, "not for all collections")
		// those are of all collections
		b.get("/").want(200, "orders", "other").without("carts", "/console/consumers", "Figures of this process", "last hour")
		b.get("/console/collections/orders").want(200, "Live 1")
		for _, path := range []string{"", "/configure", "/documents/1", "/documents/1?view=edit", "/new"} {
			b.get("/console/collections/carts" + path).want(403).without(`"of"`)
		}
		for _, path := range []string{"drop", "configure", "new", "documents/1"} {
			b.do("POST", "/console/collections/carts/"+path, url.Values{"action": {"delete"}, "confirm": {"1", "carts"},
				"id": {"2"}, "body": {"{}"}, "mode": {"off"}}).want(403)
		}
		b.get("/console/live").want(200, "name one").without("data-stream")
		b.do("GET", "/console/live/stream", nil).want(400)
		b.get("/console/live?collection=carts").want(403, "not for collection carts")
		b.do("GET", "/console/live/stream?collection=carts", nil).want(403)
		b.get("/console/live?collection=orders").want(200, "Expired documents of orders")
		b.get(rejection("carts")).want(404).without("secret", "carts") // as what is not there
		b.get(rejection("orders")).want(200, "secret")
		b.get("/console/collections/orders/documents/1").send("touch").want(200, "was touched")
	})
	if r.body("orders", "1") == "" || r.body("carts", "1") == "" || r.body("orders", "2") != "" {
		t.Error("somebody has changed what the token does not allow")
	}
	if runtime.GOOS == "windows" {
		return
	}
	// A file that changes counts for the next request.
	b := r.signedIn(t, all)
	page := b.get("/console/collections/orders/documents/1")
	write(all + " read-only\n")
	harness.Until(t, harness.Limit, "the token is for reads alone", func(context.Context) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		if !strings.Contains(b.get("/").words, "can only read") {
			return errors.New("it is for writes too")
		}
		return nil
	})
	page.send("touch").want(403)
	write("")
	harness.Until(t, harness.Limit, "nobody may do anything", func(context.Context) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			return err
		}
		if p := b.do("GET", "/", nil); p.StatusCode != http.StatusSeeOther {
			return errors.New(p.Status)
		}
		return nil
	})
	page.send("touch").want(401, "Nothing was changed")
}
