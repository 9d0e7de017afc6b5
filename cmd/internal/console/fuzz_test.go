package console_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/serve"
)

// FuzzForms: whatever a form has, the answer is a page or leads to one on this server, and the console goes on.
func FuzzForms(f *testing.F) {
	paths := []string{"sign-in", "sign-out", "collections/orders/new", "collections/orders/configure",
		"collections/orders/drop", "collections/orders/documents/1", "collections/orders/documents/?id=.",
		"collections/orders"}
	for i, form := range []string{
		"token=" + url.QueryEscape(all) + "&next=/console/live", "", "id=1&body=%7B%7D&once=x",
		"mode=after&after=7d&indexing=consistent&etag=0",
		"confirm=orders&etag=1", "action=replace&body=%7B%22a%22%3A1%7D&etag=1&once=y", "action=delete&confirm=.&etag=x",
		"%zz&a;b",
		"action=touch&etag=2", "action=replace&create=yes&body=" + strings.Repeat("[", 2000),
	} {
		f.Add(byte(i), form, "application/x-www-form-urlencoded", i%2 == 0)
	}
	f.Add(byte(2), "--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n1\r\n--b--\r\n",
		"multipart/form-data; boundary=b", true)
	tokens := filepath.Join(f.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(all+" read-write\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	r := start(f, func(o *serve.Options) { o.HTTP.TokenFile = tokens })
	b := r.browse(f)
	cookie, _, _ := strings.Cut(b.get("/").sendOnce("sign-in-form", "token", all).Header.Get("Set-Cookie"), ";")
	plain := &http.Client{Transport: b.http.Transport, CheckRedirect: b.http.CheckRedirect}
	f.Fuzz(func(t *testing.T, path byte, form, media string, signedIn bool) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.base+"/console/"+
			paths[int(path)%len(paths)], strings.NewReader(form))
		if err != nil {
			t.Fatal(err)
		}
		if strings.TrimFunc(media, func(c rune) bool { return ' ' <= c && c <= '~' }) != "" {
			return // no client can send it
		}
		req.Header.Set("Content-Type", media)
		if signedIn {
			req.Header.Set("Cookie", cookie)
		}
		resp, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		to := resp.Header.Get("Location")
		switch {
		// NATS may be slow
		case resp.StatusCode >= 500 && resp.StatusCode != 503 && resp.StatusCode != 504, resp.StatusCode < 300:
			t.Errorf("%s\n%s", resp.Status, page)
		case resp.StatusCode != http.StatusSeeOther && !strings.HasSuffix(string(page), "</html>\n"):
			t.Errorf("%s without a whole page:\n%s", resp.Status, page)
		case resp.StatusCode == http.StatusSeeOther && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//")):
			t.Errorf("it leads to %q", to)
		}
	})
}
