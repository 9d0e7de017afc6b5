package recipes_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/seed18712806/lapse/deploy/recipes"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// The interfaces of scs.
var (
	_ scs.Store            = (*recipes.SCSStore)(nil)
	_ scs.CtxStore         = (*recipes.SCSStore)(nil)
	_ scs.IterableStore    = (*recipes.SCSStore)(nil)
	_ scs.IterableCtxStore = (*recipes.SCSStore)(nil)
)

// openSCS makes a store in a lapse of the test's own.
func openSCS(t *testing.T) (*clienttest.Lapse, *client.Collection[recipes.SCSSession], *recipes.SCSStore) {
	t.Helper()
	l := clienttest.Start(t)
	sessions, err := client.Open[recipes.SCSSession](l.Client(), "sessions")
	if err == nil {
		_, err = sessions.Configure(t.Context(), client.Config{DefaultTTL: client.Never})
	}
	if err != nil {
		t.Fatal(err)
	}
	return l, sessions, recipes.NewSCSStore(sessions)
}

// TestSCS: a web application with scs keeps its sessions in lapse: they are found, end at their deadline, and at a
// logout.
func TestSCS(t *testing.T) {
	t.Parallel()
	l, sessions, store := openSCS(t)
	manager := scs.New()
	manager.Store, manager.Lifetime = store, 12*time.Hour
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(_ http.ResponseWriter, r *http.Request) { manager.Put(r.Context(), "user", "ada") })
	mux.HandleFunc("/logout", func(_ http.ResponseWriter, r *http.Request) {
		if err := manager.Destroy(r.Context()); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("user " + manager.GetString(r.Context(), "user")))
	})
	handler := manager.LoadAndSave(mux)
	ask := func(path, cookie string) (string, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Cookie", cookie)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		set, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		return w.Body.String(), set
	}
	_, out := ask("/login", "")
	_, in := ask("/login", "")
	ask("/logout", out)
	if text, _ := ask("/", out); text != "user " {
		t.Errorf("after the logout: %s", text)
	}
	if text, _ := ask("/", in); text != "user ada" {
		t.Errorf("after the login: %s", text)
	}
	if text, _ := ask("/", "session="+strings.Repeat("x", 300)); text != "user " {
		t.Errorf("with a cookie that is no token: %s", text)
	}
	all := 0
	if err := manager.Iterate(t.Context(), func(context.Context) error { all++; return nil }); err != nil || all != 1 {
		t.Errorf("%d sessions: %v", all, err)
	}
	_, token, _ := strings.Cut(in, "=")
	doc, err := sessions.Get(t.Context(), token)
	if lives := time.Until(doc.ExpiresAt); err != nil || lives < 11*time.Hour || lives > 12*time.Hour {
		t.Errorf("it lives for %s: %v", lives, err)
	}
	l.Expire("sessions", token)
	if text, _ := ask("/", in); text != "user " {
		t.Errorf("after 12 hours: %s", text)
	}
}

// TestSCSStore: the methods without a context, and what is not there.
func TestSCSStore(t *testing.T) {
	t.Parallel()
	_, sessions, store := openSCS(t)
	if err := store.Commit("a", []byte("1"), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if data, found, err := store.Find("a"); err != nil || !found || string(data) != "1" {
		t.Errorf("%q %v %v", data, found, err)
	}
	if all, err := store.All(); err != nil || !slices.Equal(slices.Collect(maps.Keys(all)), []string{"a"}) {
		t.Errorf("%v %v", all, err)
	}
	for range 2 {
		if err := store.Delete("a"); err != nil {
			t.Error(err)
		}
	}
	if _, found, err := store.Find("a"); err != nil || found {
		t.Errorf("%v %v", found, err)
	}
	if err := store.Commit("a", nil, time.Now().Add(-time.Hour)); !errors.Is(err, client.ErrRejected) {
		t.Errorf("a deadline that is over: %v", err)
	}
	if _, err := sessions.Configure(t.Context(), client.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Commit("a", nil, time.Now().Add(time.Hour)); err == nil {
		t.Error("it stores a session that never ends")
	}
}
