package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// TestPaths: every id comes back from its path, and no path is that of a folder.
func TestPaths(t *testing.T) {
	var got string
	api := access.NewRouter()
	api.Handle("GET", "/v1/collections/{collection}/documents/{id}", http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { got = r.PathValue("id") }))
	v := &visit{c: &Console{opts: Options{API: api}}, r: httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)}
	v.collection = "c"
	for _, id := range []string{"1", ".", "..", "...", "/", "a/b", "//", "../..", "%2F", "%", "a b", "?x=1#y", "ä",
		"\x01", `"`, "+", "a;b", "~", ":"} {
		got, v.id = "", id
		if _, err := v.get(); err != nil || got != id {
			t.Errorf("%q: %q, %v", id, got, err)
		}
	}
	for _, c := range []struct{ got, want string }{
		{with("/", "a", "1", "b", "", "c", "&="), "/?a=1&c=%26%3D"},
		{with("/x?id=..", "view", "raw"), "/x?id=..&view=raw"},
		{with("/x/a%2Fb", "done", "saved"), "/x/a%2Fb?done=saved"},
		{quoted("7"), `"7"`}, {quoted(""), ""}, {quoted("0"), ""},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

// TestOnce: the same form has the same key, and one that differs in anything has another.
func TestOnce(t *testing.T) {
	keys := map[string]string{}
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] += fmt.Sprint(r.Method, r.URL, r.Header.Get("If-Match"))
		if r.Header.Get("Authorization") != "Bearer t" {
			t.Error("it is without the token")
		}
		w.WriteHeader(http.StatusAccepted)
	})
	v := &visit{c: &Console{opts: Options{API: api}}, token: "t"}
	v.r = httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	for _, form := range [][]string{{"a", "PUT", "/1", "x", "1"}, {"b", "PUT", "/1", "x", "1"},
		{"a", "POST", "/1", "x", "1"}, {"a", "PUT", "/2", "x", "1"}, {"a", "PUT", "/1", "y", "1"},
		{"a", "PUT", "/1", "x", "2"}} {
		for range 2 {
			v.r.PostForm = url.Values{"once": form[:1]}
			a, err := v.write(form[1], form[2], []byte(form[3]), "If-Match", form[4])
			if err != nil || !a.Repeated() {
				t.Errorf("%v: %v", form, err)
			}
		}
	}
	if len(keys) != 6 || keys[""] != "" {
		t.Errorf("%d keys: %v", len(keys), keys)
	}
	v.r.PostForm = nil
	if _, err := v.write("PUT", "/1", nil); err != nil || keys[""] == "" {
		t.Errorf("without a form: %v", err)
	}
}
